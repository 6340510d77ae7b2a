// The rules in which releases of SGLang differ, by name: what --sglang-version selects.
//
// kReleaseRules is the one list; a new difference is a bool here and a row there. Everything else is the
// same in all supported releases. Which releases were compared with SGLang's own scheduler, and how, is in
// tests/references/schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tpsim::scheduler {

// Ascending; the last is the default.
enum class SglangRelease : std::uint8_t { k0_5_12, k0_5_14, k0_5_23 };
inline constexpr SglangRelease kNewestRelease = SglangRelease::k0_5_23;

struct ReleaseRules {
  // Admission.
  bool ignore_eos_reserves_all = false;
  bool chunks_ignore_max_prefill_tokens = false;
  bool spent_budget_ends_admission = false;
  bool chunked_request_counts_once = false;
  bool no_radix_reserves_page = false;
  bool prefix_lock_precedes_input_cap = false;
  bool full_needs_requests = false;
  bool empty_batch_is_never_full = false;
  bool lpm_sorts_by_usable_match = false;
  // Running batch.
  bool finished_leave_before_admission = false;
  bool skip_finishing_decode = false;
  bool mixed_step_checks_memory = false;
  bool preempted_return_without_admission = false;
  bool preemption_counts_known_tokens = false;
  bool abort_ends_chunks = false;
  bool abort_reaches_micro_batches = false;
  // Cache.
  bool evict_shortfall = false;
  bool split_at_prompt_end = false;
  bool split_keeps_creation_time = false;
  bool request_hits_node_once = false;
  bool refresh_waiting_prefixes = false;
  // Speculative decoding.
  bool speculation_is_v2 = false;
  bool speculation_retracts_by_length = false;
  bool heads_mix_chunks = false;
  bool speculation_reserves_whole_pages = false;
  bool speculation_counts_what_arrived = false;
  bool speculation_caches_to_the_stop = false;
  bool end_of_sequence_beats_length = false;
  bool draft_model_from_pool = false;
  bool draft_extend_graphs_with_flashinfer = false;
  bool draft_extend_graphs_with_flash_attention = false;
  // CUDA graphs.
  bool deepseek_v3_prefill_may_be_eager = false;
  bool disable_cuda_graph_is_for_prefill_too = false;
  bool torch_native_prefill_is_eager = false;
  bool mla_prefill_graphs_to_8192 = false;
  bool prefill_graphs_limit_padding = false;
  bool sparse_attention_prefills_in_pieces = false;
  bool dp_attention_prefill_graphs = false;
  bool larger_batches_below_35_gib = false;
  bool uncaptured_decode_reserves_nothing = false;
  bool captured_sizes_end_at_running_requests = false;
  // Images.
  bool encodes_images_of_all_requests = false;
  // Memory.
  bool reserves_image_memory = false;
};

struct ReleaseRule {
  bool ReleaseRules::*rule;
  SglangRelease since;
  std::string_view name;
  std::string_view what;
  std::string_view source;  // file and line in the wheel of release `since`
};

std::span<const ReleaseRule> release_rules();
ReleaseRules rules_of(SglangRelease release);

// "0.5.23", and back. parse throws UserError.
std::string_view sglang_release_name(SglangRelease release);
SglangRelease parse_sglang_release(const std::string& name);

}  // namespace tpsim::scheduler
