#include "attention/trtllm_mla.h"

#include "attention/mla_plans.h"

namespace tpsim::attention {

void TrtllmMlaBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  plan_trtllm_mla_decode(metadata().decode_seq_lens, layer.num_q_heads, multiprocessors(), plan);
}

}  // namespace tpsim::attention
