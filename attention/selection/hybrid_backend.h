// Two backends, one for prefill and one for decode, routed by forward mode (SGLang's HybridAttnBackend).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "attention/backend.h"

namespace tpsim::attention {

class HybridAttnBackend : public AttentionBackend {
 public:
  HybridAttnBackend(std::unique_ptr<AttentionBackend> prefill, std::unique_ptr<AttentionBackend> decode)
      : name_(std::string(prefill->name()) + "+" + std::string(decode->name())),
        prefill_(std::move(prefill)),
        decode_(std::move(decode)),
        active_(prefill_.get()) {}

  MlaExtend mla_extend() const override { return active_->mla_extend(); }
  void set_mla_options(const MlaOptions& options) override {
    prefill_->set_mla_options(options);
    decode_->set_mla_options(options);
  }
  std::string_view name() const override { return name_; }
  // The decode backend is captured, and that of prefill where it verifies drafts.
  void init_cuda_graph_state(std::uint32_t max_bs) override {
    decode_->init_cuda_graph_state(max_bs);
    prefill_->init_cuda_graph_state(max_bs);
  }
  void init_forward_metadata_capture_cuda_graph(std::uint32_t bs) override {
    decode_->init_forward_metadata_capture_cuda_graph(bs);
    if (verifies_with_prefill_) prefill_->init_forward_metadata_capture_cuda_graph(bs);
  }
  void set_verifies_with_prefill(bool prefill) override { verifies_with_prefill_ = prefill; }
  bool cascades() const override { return (verifies_with_prefill_ ? prefill_ : decode_)->cascades(); }
  void init_forward_metadata_replay_cuda_graph(const ForwardMetadata& metadata) override {
    activate(metadata.forward_mode);
    active_->init_forward_metadata_replay_cuda_graph(metadata);
  }
  void init_forward_metadata(const ForwardMetadata& metadata) override {
    activate(metadata.forward_mode);
    active_->init_forward_metadata(metadata);
  }
  KernelCost forward_extend(const LayerShape& layer) override { return active_->forward_extend(layer); }
  KernelCost forward_decode(const LayerShape& layer) override { return active_->forward_decode(layer); }
  KernelKind kernel() const override { return active_->kernel(); }
  const DecodePlan& decode_plan(const LayerShape& layer) override { return active_->decode_plan(layer); }
  const ExtendPlan& extend_plan(const LayerShape& layer) override { return active_->extend_plan(layer); }
  const SparsePlan& sparse_plan(const LayerShape& layer) override { return active_->sparse_plan(layer); }
  void set_sparse_options(const SparseOptions& options) override {
    prefill_->set_sparse_options(options);
    decode_->set_sparse_options(options);
  }
  KernelCost plan_cost() const override { return active_->plan_cost(); }
  double plan_host_seconds() const override { return active_->plan_host_seconds(); }
  HostCost host_cost() const override { return active_->host_cost(); }
  void save(StateWriter& state) const override {
    prefill_->save(state);
    decode_->save(state);
  }
  void load(StateReader& state) override {
    prefill_->load(state);
    decode_->load(state);
  }

 private:
  // A mixed batch is an extend batch.
  void activate(proto::ForwardMode mode) {
    const bool decodes = mode == proto::DECODE || (verifies_drafts(mode) && !verifies_with_prefill_);
    active_ = (decodes ? decode_ : prefill_).get();
  }

  std::string name_;
  std::unique_ptr<AttentionBackend> prefill_;
  std::unique_ptr<AttentionBackend> decode_;
  AttentionBackend* active_;
  bool verifies_with_prefill_ = true;
};

}  // namespace tpsim::attention
