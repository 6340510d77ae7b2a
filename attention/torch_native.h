// torch.nn.functional.scaled_dot_product_attention, one request after another.
//
// Facts from SGLang's torch_native_backend.py: each request's keys and values are gathered from the pool into
// dense tensors; a prefill behind a cached prefix computes attention for query rows of the whole sequence and
// throws the prefix's away; windows are not cut out; every request is a chain of small launches, and the pass
// is not captured. Lengths are read from the device, so that the host waits for it in every layer.
//
// On Hopper and Blackwell PyTorch's decode goes to cuDNN, which builds an execution plan for every KV length
// that the process meets for the first time (pytorch/pytorch#155958): a step takes some 29 ms longer for each
// such length, once in the life of a server ("shape_seconds" of the class attention.torch_native.decode).
// Prefill, which is causal, showed no such cost.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class TorchNativeBackend : public PlannedBackend {
 public:
  TorchNativeBackend(const proto::HardwareProfile& profile, std::uint32_t page_size);

  // Launches of one request in one layer: gathers, layout copies, SDPA, output copy, and one more where SDPA
  // splits the KV. Counted on an H200 (tests/calibration/measured/h200-sxm_attention.csv).
  static constexpr std::uint32_t kDecodeLaunches = 5;
  static constexpr std::uint32_t kExtendLaunches = 7;

  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;
  KernelKind kernel() const override { return KernelKind::kGathered; }
  void init_forward_metadata(const ForwardMetadata& metadata) override;
  HostCost host_cost() const override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  // KV splits of a request of `steps` loop steps in a layer of `heads` query heads.
  std::uint32_t splits_of(std::uint32_t heads, std::uint32_t steps);

  std::vector<bool> met_;              // by KV length: decoded before
  std::uint32_t new_shapes_ = 0;       // KV lengths of the pass planned last that were not
  std::uint32_t splits_heads_ = 0;     // heads that splits_ holds for
  std::vector<std::uint32_t> splits_;  // by steps; 0 = not worked out yet
  DecodePlan one_decode_;
  ExtendPlan one_extend_;
};

}  // namespace tpsim::attention
