#include "attention/cutlass_mla.h"

#include "attention/mla_plans.h"

namespace tpsim::attention {

void CutlassMlaBackend::plan_decode(const LayerShape&, DecodePlan& plan) {
  plan_cutlass_mla_decode(metadata().decode_seq_lens, plan);
}

}  // namespace tpsim::attention
