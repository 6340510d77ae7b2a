// SGLang 0.5.16: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_16() {
  SglangRelease release = {.name = "0.5.16", .rules = v0_5_15().rules};
  release.rules.captures_qwen3_5_prefills = true;         // configs/model_config.py:1785
  release.rules.deepseek_routes_in_fp32 = true;           // models/deepseek_v2.py:533
  release.rules.deepseek_v3_prefill_may_be_eager = true;  // server_args.py:3830
  release.rules.cached_states_refuse_backends = true;     // server_args.py:4827
  release.rules.second_streams = 2;                       // models/bailing_moe_linear.py:343
  return release;
}

}  // namespace tpsim::scheduler
