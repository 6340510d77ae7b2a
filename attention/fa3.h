// FlashAttention 3 (Hopper): paged variable-length kernel, the default of SGLang on Hopper.
//
// Facts from the public sources of flash-attention (hopper/heuristics.h, tile_size.h,
// flash_prepare_scheduler.cu) and of SGLang's flashattention_backend.py: query tiles of 128 rows (192 for
// head size 64), KV steps by head size; decode packs the query heads of one KV head into a tile; the number
// of KV splits comes from how far the blocks of the longest sequence fill the multiprocessors, and is then
// lowered per request by a small kernel that runs before the attention.
//
// MLA: the absorbed kernel multiplies the rotated 64 elements and, as a second product, the latent (its
// `qv`), in tiles of 64 by 64; a cache of another width than the queries is widened as a whole before every
// call. The un-absorbed kernel reads dense keys and values and is never split (flashattention_backend.py).
#pragma once

#include <cstdint>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class Fa3Backend : public PlannedBackend {
 public:
  Fa3Backend(const proto::HardwareProfile& profile, std::uint32_t page_size);

  KernelCost plan_cost() const override;

  // Most KV splits of a sequence that has the device to itself: `blocks` thread blocks without splitting,
  // `kv_steps` steps of the loop over KV. Public for tests.
  static std::uint32_t num_splits(std::uint32_t blocks, std::uint32_t multiprocessors,
                                  std::uint32_t kv_steps);
  static std::uint32_t tile_m(const LayerShape& layer);
  static std::uint32_t tile_n(const LayerShape& layer);

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  MlaRule mla_rule() const override { return {.prefix = MlaPrefix::kFromThreshold, .one_shot = true}; }

 private:
  std::uint32_t steps_per_block(std::uint64_t steps) const;
};

}  // namespace tpsim::attention
