// SGLang 0.5.8: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_8() {
  SglangRelease release = {.name = "0.5.8", .rules = v0_5_6().rules};
  ReleaseRules& rules = release.rules;
  rules.trtllm_runs_more_experts = true;  // server_args.py:1477, 1496, 1530
  rules.fuses_all_reduces = 2;            // server_args.py:1614
  rules.fuses_all_reduces_on_hopper = true;
  return release;
}

}  // namespace tpsim::scheduler
