// SGLang 0.5.14: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_14() {
  SglangRelease release = {.name = "0.5.14", .rules = v0_5_12().rules};
  ReleaseRules& rules = release.rules;
  rules.chunks_ignore_max_prefill_tokens = true;         // managers/schedule_policy.py:910
  rules.lpm_sorts_by_usable_match = true;                // managers/schedule_policy.py:302
  rules.abort_ends_chunks = true;                        // managers/scheduler.py:2467
  rules.speculation_is_v2 = true;                        // managers/schedule_batch.py:2428
  rules.draft_model_from_pool = true;                    // model_executor/pool_configurator.py:129
  rules.draft_extend_graphs_with_flashinfer = true;      // speculative/eagle_worker_v2.py:427
  rules.disable_cuda_graph_is_for_prefill_too = true;    // server_args.py:2942
  rules.torch_native_prefill_is_eager = true;            // server_args.py:4494
  rules.captures_prefills_beside_trtllm_experts = true;  // server_args.py:2997, without 0.5.12's line 3175
  rules.snapshots_states = true;                         // server_args.py:4385
  return release;
}

}  // namespace tpsim::scheduler
