// SGLang 0.5.15: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_15() {
  SglangRelease release = {.name = "0.5.15", .rules = v0_5_14().rules};
  release.rules.prefill_pieces_are_breakable = true;  // model_executor/cuda_graph_config.py:101
  release.rules.mla_prefill_is_eager = true;          // server_args.py:3351
  release.rules.fuses_all_reduces = 5;                // arg_groups/overrides.py:1352
  return release;
}

}  // namespace tpsim::scheduler
