// SGLang 0.5.23: what holds in it besides. Behind each rule its file and line in the wheel.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_23() {
  SglangRelease release = {.name = "0.5.23", .rules = v0_5_16().rules};
  ReleaseRules& rules = release.rules;
  rules.ignore_eos_reserves_all = true;             // managers/schedule_policy.py:786
  rules.spent_budget_ends_admission = true;         // managers/scheduler.py:4207
  rules.chunked_request_counts_once = true;         // managers/scheduler.py:4035
  rules.no_radix_reserves_page = true;              // managers/schedule_policy.py:1099
  rules.prefix_lock_precedes_input_cap = true;      // managers/schedule_policy.py:1434
  rules.full_needs_requests = true;                 // managers/scheduler.py:4280
  rules.empty_batch_is_never_full = true;           // managers/scheduler.py:4093
  rules.prefill_delays_are_bounded = true;          // managers/prefill_delayer.py:29, 289
  rules.finished_leave_before_admission = true;     // managers/scheduler.py:3963
  rules.skip_finishing_decode = true;               // managers/scheduler.py:2063, 4444
  rules.mixed_step_checks_memory = true;            // managers/scheduler.py:4384
  rules.preempted_return_without_admission = true;  // managers/scheduler.py:4305
  rules.preemption_counts_known_tokens = true;      // managers/schedule_policy.py:1736
  rules.abort_reaches_micro_batches = true;         // managers/scheduler.py:5657
  rules.preallocation_counts_pages = true;          // disaggregation/decode.py:1550
  rules.prefill_server_captures_prefills = true;    // arg_groups/cuda_graph_hook.py:557
  rules.decode_server_reserves_for_decodes = true;  // arg_groups/memory_hook.py:298
  rules.evict_shortfall = true;                     // mem_cache/allocator/base.py:166
  rules.split_at_prompt_end = true;                 // mem_cache/unified_radix_cache.py:1254
  rules.split_keeps_creation_time = true;           // mem_cache/unified_cache/unified_tree_core.py:1476
  rules.request_hits_node_once = true;              // mem_cache/unified_cache/unified_tree_core.py:1371
  rules.refresh_waiting_prefixes = true;            // managers/schedule_policy.py:283
  rules.speculation_retracts_by_length = true;      // managers/schedule_batch.py:3506
  rules.heads_mix_chunks = true;                    // speculative/spec_info.py:147
  rules.speculation_reserves_whole_pages = true;    // mem_cache/allocation_sizing.py:88
  rules.speculation_counts_what_arrived =
      true;                                     // managers/scheduler_components/batch_result_processor.py:831
  rules.speculation_caches_to_the_stop = true;  // managers/schedule_batch.py:1552
  rules.end_of_sequence_beats_length = true;    // managers/schedule_batch.py:2034
  rules.draft_extend_graphs_with_flash_attention = true;  // speculative/eagle_worker_v2.py:594
  rules.mla_prefill_is_eager = false;                     // arg_groups/cuda_graph_hook.py:170
  rules.mla_prefill_graphs_to_8192 = true;                // arg_groups/memory_hook.py:238
  rules.prefill_graphs_limit_padding = true;  // model_executor/runner/prefill_cuda_graph_runner.py:1419
  rules.sparse_attention_prefills_in_pieces = true;     // configs/model_config.py:2475
  rules.dp_attention_prefill_graphs = true;             // managers/scheduler_components/dp_attn.py:372
  rules.larger_batches_below_35_gib = true;             // arg_groups/memory_hook.py:101
  rules.uncaptured_decode_reserves_nothing = true;      // arg_groups/memory_hook.py:366
  rules.captured_sizes_end_at_running_requests = true;  // arg_groups/memory_hook.py:183
  rules.encodes_images_of_all_requests = true;          // managers/mm_schedule.py:349
  rules.reserves_image_memory = true;                   // mem_cache/kv_cache_configurator.py:202
  rules.qwen3_vl_is_profiled = true;                    // arg_groups/overrides.py
  rules.sizes_window_pool = true;                       // model_executor/pool_configurator.py
  rules.serial_states = 1;                              // arg_groups/model_hook.py:716
  rules.host_kernels_beside_fa3 = true;                 // arg_groups/hicache_hook.py: no step of its own
  rules.host_pages_first = true;                        // arg_groups/fields/memory.py (hicache_mem_layout)
  rules.host_tier_may_be_small = true;                  // mem_cache/pool_host/base.py:238
  rules.host_tier_captures_prefills = true;             // arg_groups/cuda_graph_hook.py: not asked
  rules.loads_what_it_admits = true;            // managers/schedule_policy.py (_select_prefill_admission)
  rules.flashinfer_prefills_delta_nets = true;  // arg_groups/attention_hook.py (handle_linear_attn_backend)
  rules.gemma3_norms_are_kernels = true;        // layers/layernorm.py:1342
  rules.small_kernels_overlap = true;   // kernels/ops/moe/moe_align_small_numel.py:149, moe_fused_gate.py:503
  rules.one_kernel_routes_many = true;  // layers/moe/topk.py:2175
  rules.sparse_lists_have_lengths = true;  // layers/attention/dsa_backend.py:2470, 2871
  rules.tunes_scans = true;                // kernels/ops/mamba/triton_ops/ssd_chunk_state.py:128
  rules.renames_flags = true;              // arg_groups/fields
  rules.refuses_dropped_backends = true;   // arg_groups/choices.py
  release.rules.second_streams = 3;        // models/minimax_m3.py:619
  // Five models of 6 to 10 layers on H200s, whose kernels take 1.4 to 1.9 ms: no decode of one request was
  // below 2.0 ms, of 16, 32 and 64 2.4, 2.6 and 3.2 (h200-sxm_servers/eleventh and thirteenth).
  release.rules.decode_steps = 2;
  return release;
}

}  // namespace tpsim::scheduler
