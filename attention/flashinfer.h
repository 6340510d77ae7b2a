// FlashInfer: batch prefill and decode over a ragged page table, planned on the host before each pass.
//
// Facts from the public sources of flashinfer (attention/scheduler.cuh, prefill.cuh) and of SGLang's
// flashinfer_backend.py: query rows of the heads of one KV head are packed; the query tile is 128, 64 or 16
// rows by the average packed length; decode uses the tensor-core kernel where four or more query heads share
// a KV head; a binary search finds the smallest KV chunk whose blocks still fit the device at once; parts are
// merged by a kernel of their own. The plan reads the lengths on the host.
#pragma once

#include <cstdint>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class FlashInferBackend : public PlannedBackend {
 public:
  FlashInferBackend(const proto::HardwareProfile& profile, std::uint32_t page_size);

  KernelCost plan_cost() const override;
  double plan_host_seconds() const override;

  static std::uint32_t cta_tile_q(double average_packed_len, std::uint32_t head_dim);

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
};

}  // namespace tpsim::attention
