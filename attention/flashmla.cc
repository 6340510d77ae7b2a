#include "attention/flashmla.h"

#include "attention/mla_plans.h"

namespace tpsim::attention {

void FlashMlaBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  plan_flashmla_decode(metadata().decode_seq_lens, layer.num_q_heads, multiprocessors(), plan);
}

}  // namespace tpsim::attention
