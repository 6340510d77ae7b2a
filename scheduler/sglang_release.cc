#include "scheduler/sglang_release.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "proto/base/error.h"

namespace tpsim::scheduler {
namespace {

using enum SglangRelease;

constexpr std::array<std::string_view, 3> kNames = {"0.5.12", "0.5.14", "0.5.23"};

constexpr ReleaseRule kReleaseRules[] = {
    {&ReleaseRules::chunks_ignore_max_prefill_tokens, k0_5_14, "chunks-ignore-max-prefill-tokens",
     "--max-prefill-tokens keeps a request out of a batch only without chunked prefill",
     "managers/schedule_policy.py:910"},
    {&ReleaseRules::lpm_sorts_by_usable_match, k0_5_14, "lpm-sorts-by-usable-match",
     "lpm sorts by the match without the last token, which is computed in any case",
     "managers/schedule_policy.py:302"},
    {&ReleaseRules::ignore_eos_reserves_all, k0_5_23, "ignore-eos-reserves-all",
     "a running request with ignore_eos reserves all its output, not new_token_ratio of it",
     "managers/schedule_policy.py:786"},
    {&ReleaseRules::spent_budget_ends_admission, k0_5_23, "spent-budget-ends-admission",
     "a spent token budget ends admission before a candidate is tried", "managers/scheduler.py:4207"},
    {&ReleaseRules::chunked_request_counts_once, k0_5_23, "chunked-request-counts-once",
     "a continuing chunk, which has its row, takes no free row of the request table",
     "managers/scheduler.py:4035"},
    {&ReleaseRules::no_radix_reserves_page, k0_5_23, "no-radix-reserves-page",
     "without a radix cache, too, admission asks for a page more than the prompt",
     "managers/schedule_policy.py:1099"},
    {&ReleaseRules::prefix_lock_precedes_input_cap, k0_5_23, "prefix-lock-precedes-input-cap",
     "the matched prefix is locked before --max-prefill-tokens is looked at",
     "managers/schedule_policy.py:1434"},
    {&ReleaseRules::full_needs_requests, k0_5_23, "full-needs-requests",
     "a candidate without room closes admission only if something runs or was admitted",
     "managers/scheduler.py:4280"},
    {&ReleaseRules::empty_batch_is_never_full, k0_5_23, "empty-batch-is-never-full",
     "an empty running batch opens admission again", "managers/scheduler.py:4093"},
    {&ReleaseRules::finished_leave_before_admission, k0_5_23, "finished-leave-before-admission",
     "finished requests leave the running batch before admission, not with the next decode step",
     "managers/scheduler.py:3963"},
    {&ReleaseRules::skip_finishing_decode, k0_5_23, "skip-finishing-decode",
     "with overlap, a request whose last token is in flight by length is not decoded again",
     "managers/scheduler.py:2063, 4444"},
    {&ReleaseRules::mixed_step_checks_memory, k0_5_23, "mixed-step-checks-memory",
     "decoding requests sit out a mixed step that has no room for them", "managers/scheduler.py:4384"},
    {&ReleaseRules::preempted_return_without_admission, k0_5_23, "preempted-return-without-admission",
     "preempted requests return to the queue also where nothing was admitted in their place",
     "managers/scheduler.py:4305"},
    {&ReleaseRules::preemption_counts_known_tokens, k0_5_23, "preemption-counts-known-tokens",
     "a request that comes back weighs its tokens when it preempts, before it is matched again",
     "managers/schedule_policy.py:1736"},
    {&ReleaseRules::abort_ends_chunks, k0_5_14, "abort-ends-chunks",
     "an aborted request leaves between the chunks of its prompt; before, its prefill went on to the end",
     "managers/scheduler.py:2467"},
    {&ReleaseRules::abort_reaches_micro_batches, k0_5_23, "abort-reaches-micro-batches",
     "an abort reaches requests of every micro-batch; before, those of the next one and of the pass before",
     "managers/scheduler.py:5657"},
    {&ReleaseRules::evict_shortfall, k0_5_23, "evict-shortfall",
     "eviction frees what is short, not the whole demand", "mem_cache/allocator/base.py:166"},
    {&ReleaseRules::split_at_prompt_end, k0_5_23, "split-at-prompt-end",
     "a sequence is split at the end of its prompt, whose priority is one higher",
     "mem_cache/unified_radix_cache.py:1254"},
    {&ReleaseRules::split_keeps_creation_time, k0_5_23, "split-keeps-creation-time",
     "both halves of a split node have its creation time",
     "mem_cache/unified_cache/unified_tree_core.py:1476"},
    {&ReleaseRules::request_hits_node_once, k0_5_23, "request-hits-node-once",
     "a request counts one hit for a node (lfu), however often it inserts through it",
     "mem_cache/unified_cache/unified_tree_core.py:1371"},
    {&ReleaseRules::refresh_waiting_prefixes, k0_5_23, "refresh-waiting-prefixes",
     "every 32nd pass the cached prefixes of the first 128 waiting requests count as used (lru)",
     "managers/schedule_policy.py:283"},
    {&ReleaseRules::speculation_is_v2, k0_5_14, "speculation-is-v2",
     "every speculative algorithm reserves for two steps and may overlap; before, trees and NGRAM did not",
     "managers/schedule_batch.py:2428"},
    {&ReleaseRules::speculation_retracts_by_length, k0_5_23, "speculation-retracts-by-length",
     "with speculative decoding, too, the request with the fewest tokens gives way first, not the last one",
     "managers/schedule_batch.py:3506"},
    {&ReleaseRules::heads_mix_chunks, k0_5_23, "heads-mix-chunks",
     "--enable-mixed-chunk holds with EAGLE, too: beside a chunk of prefill requests decode a token each",
     "speculative/spec_info.py:147"},
    {&ReleaseRules::speculation_reserves_whole_pages, k0_5_23, "speculation-reserves-whole-pages",
     "what is reserved for two speculative steps ends with a page, and nothing is evicted where it suffices",
     "mem_cache/allocation_sizing.py:88"},
    {&ReleaseRules::speculation_counts_what_arrived, k0_5_23, "speculation-counts-what-arrived",
     "the KV of the token sampled last counts when its step's result comes, not when the step is formed",
     "managers/scheduler_components/batch_result_processor.py:831"},
    {&ReleaseRules::speculation_caches_to_the_stop, k0_5_23, "speculation-caches-to-the-stop",
     "of a request that ends within what a step accepted, only what its client sees is cached",
     "managers/schedule_batch.py:1552"},
    {&ReleaseRules::end_of_sequence_beats_length, k0_5_23, "end-of-sequence-beats-length",
     "where a speculative step reaches an end of sequence and the longest output, the former ends the answer",
     "managers/schedule_batch.py:2034"},
    {&ReleaseRules::draft_model_from_pool, k0_5_14, "draft-model-from-pool",
     "the draft model's weights and KV lessen the pool; before, 4 or 6 GiB were kept free for it",
     "model_executor/pool_configurator.py:129"},
    {&ReleaseRules::draft_extend_graphs_with_flashinfer, k0_5_14, "draft-extend-graphs-with-flashinfer",
     "the draft model's extend is captured with flashinfer (no MLA) and trtllm_mha, too",
     "speculative/eagle_worker_v2.py:427"},
    {&ReleaseRules::draft_extend_graphs_with_flash_attention, k0_5_23,
     "draft-extend-graphs-with-flash-attention",
     "the draft model's extend is captured with fa3, fa4 and flashmla, too",
     "speculative/eagle_worker_v2.py:594"},
    {&ReleaseRules::deepseek_v3_prefill_may_be_eager, k0_5_23, "deepseek-v3-prefill-may-be-eager",
     "no prefill of DeepseekV3ForCausalLM is captured with trtllm_mla", "arg_groups/cuda_graph_hook.py:279"},
    {&ReleaseRules::disable_cuda_graph_is_for_prefill_too, k0_5_14, "disable-cuda-graph-is-for-prefill-too",
     "--disable-cuda-graph turns the graphs of prefill off, too", "server_args.py:2942"},
    {&ReleaseRules::torch_native_prefill_is_eager, k0_5_14, "torch-native-prefill-is-eager",
     "torch_native runs prefill, too, without graphs", "server_args.py:4494"},
    {&ReleaseRules::mla_prefill_graphs_to_8192, k0_5_23, "mla-prefill-graphs-to-8192",
     "prefill of MLA models is captured up to 8,192 tokens instead of 2,048",
     "arg_groups/memory_hook.py:238"},
    {&ReleaseRules::prefill_graphs_limit_padding, k0_5_23, "prefill-graphs-limit-padding",
     "a prefill whose captured size is more than twice its tokens runs without graphs",
     "model_executor/runner/prefill_cuda_graph_runner.py:1419"},
    {&ReleaseRules::sparse_attention_prefills_in_pieces, k0_5_23, "sparse-attention-prefills-in-pieces",
     "prefill of DeepSeek-V3.2 and GLM-5 is captured in pieces, too", "configs/model_config.py:2475"},
    {&ReleaseRules::dp_attention_prefill_graphs, k0_5_23, "dp-attention-prefill-graphs",
     "prefill is captured with data-parallel attention or an all-to-all, too; all ranks replay or none",
     "managers/scheduler_components/dp_attn.py:372"},
    {&ReleaseRules::larger_batches_below_35_gib, k0_5_23, "larger-batches-below-35-gib",
     "GPUs of 20 to 35 GiB prefill chunks of 4,096 tokens and capture decodes of up to 48 or 160 requests",
     "arg_groups/memory_hook.py:101"},
    {&ReleaseRules::uncaptured_decode_reserves_nothing, k0_5_23, "uncaptured-decode-reserves-nothing",
     "without graphs of decode no memory is kept free for them", "arg_groups/memory_hook.py:366"},
    {&ReleaseRules::captured_sizes_end_at_running_requests, k0_5_23, "captured-sizes-end-at-running-requests",
     "by default no decode larger than --max-running-requests is captured", "arg_groups/memory_hook.py:183"},
    {&ReleaseRules::encodes_images_of_all_requests, k0_5_23, "encodes-images-of-all-requests",
     "images of a batch are encoded together; before, each request's by themselves",
     "managers/mm_schedule.py:349"},
    {&ReleaseRules::reserves_image_memory, k0_5_23, "reserves-image-memory",
     "what image embeddings will take is kept out of the KV pool", "mem_cache/kv_cache_configurator.py:202"},
};

}  // namespace

std::span<const ReleaseRule> release_rules() { return kReleaseRules; }

ReleaseRules rules_of(SglangRelease release) {
  ReleaseRules rules;
  for (const ReleaseRule& row : kReleaseRules) rules.*row.rule = release >= row.since;
  return rules;
}

std::string_view sglang_release_name(SglangRelease release) {
  return kNames[static_cast<std::size_t>(release)];
}

SglangRelease parse_sglang_release(const std::string& name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<SglangRelease>(i);
  }
  throw_user_error("--sglang-version {}: the rules of {} are known", name, fmt::join(kNames, ", "));
}

}  // namespace tpsim::scheduler
