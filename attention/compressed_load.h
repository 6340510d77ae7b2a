// What a batch makes of attention over compressed tokens (DeepSeek V4) do: the loads that SparseCost prices.
// Every query token attends to the last tokens of its sequence, and to the compressed ones before it: all of
// them, or the best top_k that the layer's indexer finds among them.
#pragma once

#include <cstdint>
#include <span>

#include "attention/layer_shape.h"
#include "attention/plan.h"

namespace tpsim::attention {

// `stored`, `scored` and what is searched count compressed tokens, which the indexer scores; all else the
// places of the lists. REQUIRES: layer.form is kCompressed.
SparseLoad compressed_load(std::span<const SparseItem> items, const LayerShape& layer);

// What FlashMLA makes of it: query heads padded to 64 or 128, and the lists of few query tokens cut so that
// they fill the device. Leaves the items as they are.
void plan_compressed(const LayerShape& layer, const SparseLoad& load, bool decodes,
                     std::uint32_t multiprocessors, SparsePlan& plan);

}  // namespace tpsim::attention
