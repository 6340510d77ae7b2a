// Backends that attend to one request after another: the keys and values of a request are gathered from the
// pool into dense tensors; a prefill after a cached prefix computes attention for query rows of the whole
// sequence and throws the prefix's away; windows are masked at most, never cut out. Lengths are read from the
// device, so that the host waits for it in every layer.
// Source: SGLang's torch_native_backend.py and torch_flex_backend.py, which share that loop.
#pragma once

#include <cstdint>

#include "attention/planned_backend.h"

namespace tpsim::attention::backends {

class GatheredBackend : public PlannedBackend {
 public:
  // Of one request in one layer; `merge`: further ones of a decode whose parts are added up.
  struct Launches {
    std::uint32_t decode = 0, merge = 0, extend = 0;
  };
  GatheredBackend(const BackendRow& row, const proto::HardwareProfile& profile, std::uint32_t page_size,
                  const Launches& launches)
      : PlannedBackend(row, profile, page_size), launches_(launches) {}

  KernelKind kernel() const override { return KernelKind::kGathered; }
  HostCost host_cost() const override;
  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;

 protected:
  // An item of each request's whole KV, not cut.
  void add_whole_items(DecodePlan& plan) const;
  // Tiles of 128 query rows of one head, KV steps of 64, as PyTorch's kernels have them.
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  Launches launches_;
  DecodePlan one_decode_;
  ExtendPlan one_extend_;
};

}  // namespace tpsim::attention::backends
