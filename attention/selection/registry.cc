#include "attention/selection/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/backend.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

// Two backends, one for prefill and one for decode, routed by forward mode (SGLang's HybridAttnBackend).
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

std::unique_ptr<AttentionBackend> create_one(const std::string& name, const proto::HardwareProfile& profile,
                                             std::uint32_t page_size) {
  const BackendDescription& backend = find_backend(name, "--attention-backend");
  return backend.create(backend.row, profile, page_size);
}

// Names that SGLang 0.5.23 knows besides (ATTENTION_BACKEND_CHOICES of arg_groups/choices.py), and why no
// backend of the list is it.
struct NotSimulated {
  std::string_view name, clause;
};
constexpr NotSimulated kNotSimulated[] = {
    {"cutedsl_mla",
     "decodes MLA models on data-center Blackwell with kernels that have not been measured; trtllm_mla, "
     "which "
     "prefills for it, decodes too"},
    {"tokenspeed_mla",
     "is SGLang's old name of cutedsl_mla, whose kernels have not been measured; use trtllm_mla"},
    {"hpc_ops",
     "is Tencent's HPC-Ops (MHA models on Hopper, pages of 64 tokens), whose kernels have not been measured; "
     "use fa3"},
    {"qsa", "is for models with Qwen's sparse attention (Qwen4-Exp), whose configs are not read"},
    {"minicpm_flashattn", "is for MiniCPM's sparse attention, whose configs are not read"},
    {"minicpm_flashinfer", "is for MiniCPM's sparse attention, whose configs are not read"},
    {"llada2_cfg_flashinfer", "is for LLaDA's diffusion language models, whose configs are not read"},
};

// ": ascend has no sliding-window attention, which this model's layers need": of the backends that run on the
// device in the model's form.
std::string what_hinders(const Selection& selection) {
  std::string text;
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    const bool of_form = selection.sparse       ? row.sparse
                         : selection.compressed ? row.compressed
                         : selection.mla        ? row.has_mla
                                                : row.has_mha;
    if (!of_form || row.dual_chunk != selection.dual_chunk || prefills_only(row, selection)) continue;
    if (row.devices(selection.mla).contains(selection.generation) || selection.sparse ||
        selection.compressed || selection.dual_chunk)
      text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", row.name, unfit(row, selection));
  }
  return text;
}

}  // namespace

const BackendDescription& find_backend(const std::string& name, const std::string& flag) {
  std::vector<std::string_view> known;
  for (const BackendDescription* backend : backend_list()) {
    if (name == backend->row.name || (!name.empty() && name == backend->row.alias)) return *backend;
    known.push_back(backend->row.name);
  }
  for (const NotSimulated& other : kNotSimulated)
    if (name == other.name) throw_user_error("{} {}: {} {}", flag, name, name, other.clause);
  const std::string guess = did_you_mean(name, known);
  throw_user_error("{} {}: unknown attention backend{} Implemented are {}", flag, name,
                   guess.empty() ? "." : guess, fmt::join(known, ", "));
}

BackendPair parse_backend_pair(const std::string& spec, const std::string& flag) {
  const std::size_t plus = spec.find('+');
  const BackendRow& prefill = find_backend(spec.substr(0, plus), flag).row;
  const BackendRow& decode = find_backend(plus == std::string::npos ? spec : spec.substr(plus + 1), flag).row;
  return {std::string(prefill.name), std::string(decode.name)};
}

std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size) {
  const BackendPair pair = parse_backend_pair(spec, "--attention-backend");
  if (pair.prefill == pair.decode) return create_one(pair.prefill, profile, page_size);
  return std::make_unique<HybridAttnBackend>(create_one(pair.prefill, profile, page_size),
                                             create_one(pair.decode, profile, page_size));
}

AutomaticChoice choose_backend(const Selection& selection) {
  for (const BackendDescription* backend : backend_list()) {
    const std::string_view reason = backend->chosen_for == nullptr ? "" : backend->chosen_for(selection);
    if (!reason.empty() && unfit(backend->row, selection).empty())
      return {std::string(backend->row.name), std::string(reason)};
  }
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    if (prefills_only(row, selection) || !unfit(row, selection).empty()) continue;
    return {std::string(row.name),
            fmt::format("SGLang has no default for this model here; {} is the first that runs", row.name)};
  }
  throw_user_error(
      "--attention-backend: none runs this {} model on a device of kind {}{}; use another --hardware",
      selection.sparse       ? "sparse-attention"
      : selection.compressed ? "compressed-attention"
      : selection.mla        ? "MLA"
                             : "MHA",
      to_string(selection.generation), what_hinders(selection));
}

}  // namespace tpsim::attention
