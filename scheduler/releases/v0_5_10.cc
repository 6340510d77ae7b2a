// SGLang 0.5.10: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_10() {
  SglangRelease release = {.name = "0.5.10", .rules = v0_5_8().rules};
  release.rules.captures_prefills = true;                 // server_args.py:1078
  release.rules.cached_states_refuse_speculation = true;  // server_args.py:2203
  release.rules.fuses_all_reduces = 3;                    // server_args.py:2093; Kimi K2.5 already in 0.5.9
  release.rules.fp32_routers = 2;                         // models/glm4_moe.py:372
  return release;
}

}  // namespace tpsim::scheduler
