// SGLang's Triton kernels: two-stage flash decoding with a few KV splits, and an extend kernel that walks the
// cached prefix and then the new tokens.
//
// Facts from SGLang's triton_backend.py (get_num_kv_splits, --triton-attention-num-kv-splits 8) and
// triton_ops/decode_attention.py, extend_attention.py: decode blocks take up to 16 query heads of one KV
// head; the number of splits grows with the length of the sequence and falls with the size of the batch.
// The extend grid has as many query tiles for every request as the longest one needs (SGLang 0.5.14): a tile
// past the end of its request still walks all of the request's KV, which makes mixed and very ragged batches
// slow. Seen on an H200: 2048 new tokens together with 100 decoding requests of 3,000 tokens took 74 ms a
// layer.
#pragma once

#include <cstdint>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class TritonBackend : public PlannedBackend {
 public:
  TritonBackend(const proto::HardwareProfile& profile, std::uint32_t page_size);

  KernelCost plan_cost() const override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
};

}  // namespace tpsim::attention
