// What the backends have in common: they keep the batch of the pass, make a plan for each kind
// of layer of it once, and charge the cost of that plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "attention/backend_description.h"
#include "attention/block_sparse.h"
#include "attention/gpu_generation.h"
#include "attention/plan.h"
#include "attention/plan_cost.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

class PlannedBackend : public AttentionBackend {
 public:
  // `row` must outlive this.
  PlannedBackend(const BackendRow& row, const proto::HardwareProfile& profile, std::uint32_t page_size);

  std::string_view name() const override { return row_.name; }
  void init_cuda_graph_state(std::uint32_t max_bs) override;
  void init_forward_metadata_capture_cuda_graph(std::uint32_t bs) override;
  // Throws std::logic_error for a bucket that was not captured.
  void init_forward_metadata_replay_cuda_graph(const ForwardMetadata& metadata) override;
  void init_forward_metadata(const ForwardMetadata& metadata) override;
  KernelCost forward_extend(const LayerShape& layer) override;
  KernelCost forward_decode(const LayerShape& layer) override;
  KernelCost plan_cost() const override { return small_kernels(row_.plan_kernels); }
  double plan_host_seconds() const override { return 0; }
  HostCost host_cost() const override;

  // The plan for the batch that was planned last, for tests and for whoever carries it out. A mixed batch is
  // an extend batch in which decoding requests extend by one token, as in SGLang.
  MlaExtend mla_extend() const override;
  void set_mla_options(const MlaOptions& options) override { mla_options_ = options; }
  const DecodePlan& decode_plan(const LayerShape& layer) override;
  const ExtendPlan& extend_plan(const LayerShape& layer) override;
  // Cost of carrying out a plan of this backend, by any model of the GPU: the one that the profile's
  // coefficients give (forward_decode, forward_extend), or one with other coefficients, for fits.
  virtual KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer);
  virtual KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer);

 protected:
  // Fill `plan` for metadata(); `plan` is empty but keeps its capacity.
  virtual void plan_decode(const LayerShape& layer, DecodePlan& plan) = 0;
  virtual void plan_extend(const LayerShape& layer, ExtendPlan& plan) = 0;
  // The same as plan_decode() where it is only priced: `plan` has totals and no items. False, and nothing
  // done, where the price needs them.
  virtual bool sum_decode(const LayerShape&, DecodePlan&) { return false; }
  // Prices the MHA extends of this pass: by the class "attention.NAME.extend", unless kernels differ by pass.
  virtual const PlanCost& extend_model() const { return extend_cost_; }
  const ForwardMetadata& metadata() const { return metadata_; }
  std::uint32_t page_size() const { return page_size_; }
  std::uint32_t multiprocessors() const { return multiprocessors_; }
  const proto::HardwareProfile& profile() const { return profile_; }
  GpuGeneration generation() const { return generation_; }
  const PlanCoefficients& decode_coefficients() const { return decode_cost_.coefficients(); }
  // An item of each request of the decode, not cut. Returns the most KV tokens that one reads.
  std::uint32_t add_decode_items(const LayerShape& layer, DecodePlan& plan) const;
  // The new tokens of every request of metadata(), those that decode and drafts that are verified among them.
  void add_query_items(std::vector<SparseItem>& items) const;
  // The items of the layer that is being planned. Returns the most new tokens of one.
  std::uint32_t add_extend_items(ExtendPlan& plan) const;
  // The same, in tiles of `rows` query tokens of one head and steps of `tile_n` KV tokens.
  void add_extend_items_by_head(std::uint32_t rows, std::uint32_t tile_n, const LayerShape& layer,
                                ExtendPlan& plan) const;
  // Of a backend that rounds q to fp8, if so, in a kernel before its own.
  static KernelCost extend_cost_with_fp8_queries(bool rounds, const PlanCost& model, const ExtendPlan& plan,
                                                 const LayerShape& layer);
  // BackendRow::plan_kernels.
  static KernelCost small_kernels(std::uint32_t count) { return {count * 2e-6, 0, 0, count}; }

 private:
  void take(const ForwardMetadata& metadata);
  KernelCost verify_by_decoding(const LayerShape& layer);
  KernelCost block_sparse(const LayerShape& layer);
  LayerShape priced(const LayerShape& layer) const;
  void add_extend_item(std::uint32_t request, std::uint32_t prefix, std::uint32_t q_len,
                       ExtendPlan& plan) const;
  const BackendRow& row_;
  proto::HardwareProfile profile_;
  std::uint32_t page_size_;
  std::uint32_t multiprocessors_;
  GpuGeneration generation_;
  PlanCost extend_cost_;
  PlanCost decode_cost_;
  PlanCost mla_extend_cost_;   // absorbed
  PlanCost mla_decode_cost_;   // absorbed
  PlanCost mla_prefill_cost_;  // expanded
  BlockSparse block_sparse_cost_;
  std::vector<SparseItem> query_items_;  // of the batch, where layers attend to blocks
  MlaOptions mla_options_;
  std::vector<bool> captured_;  // by batch size
  ForwardMetadata metadata_;
  std::vector<std::uint32_t> verified_seq_lens_;  // verifies_by_decoding: KV lengths, new tokens included
  std::uint32_t attention_chunk_ = 0;             // of the layer that is being planned
  DecodePlan decode_plan_;
  ExtendPlan extend_plan_;
};

}  // namespace tpsim::attention
