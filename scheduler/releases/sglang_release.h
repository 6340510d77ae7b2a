// The rules in which releases of SGLang differ, by name: what --sglang-version selects.
//
// What has no rule is the same in all. No code asks which release is the newest. Which releases were compared
// with SGLang's own scheduler, and how, is in tests/references/schedule.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tpsim::scheduler {

struct ReleaseRules {
  // ---- admission ----

  // A running request with ignore_eos reserves all its output, not new_token_ratio of it.
  bool ignore_eos_reserves_all = false;
  // --max-prefill-tokens keeps a request out of a batch only without chunked prefill.
  bool chunks_ignore_max_prefill_tokens = false;
  // A spent token budget ends admission before a candidate is tried.
  bool spent_budget_ends_admission = false;
  // A continuing chunk, which has its row, takes no free row of the request table.
  bool chunked_request_counts_once = false;
  // Without a radix cache, too, admission asks for a page more than the prompt.
  bool no_radix_reserves_page = false;
  // The matched prefix is locked before --max-prefill-tokens is looked at.
  bool prefix_lock_precedes_input_cap = false;
  // A candidate without room closes admission only if something runs or was admitted.
  bool full_needs_requests = false;
  // An empty running batch opens admission again.
  bool empty_batch_is_never_full = false;
  // --enable-prefill-delayer: ranks that all ask wait for --prefill-delayer-max-delay-passes at most, who has
  // no room does not ask, and prefills are compared with the largest of the last 16 that were tried.
  bool prefill_delays_are_bounded = false;
  // lpm sorts by the match without the last token, which is computed in any case.
  bool lpm_sorts_by_usable_match = false;

  // ---- running batch ----

  // Finished requests leave the running batch before admission, not with the next decode step.
  bool finished_leave_before_admission = false;
  // With overlap, a request whose last token is in flight by length is not decoded again.
  bool skip_finishing_decode = false;
  // Decoding requests sit out a mixed step that has no room for them.
  bool mixed_step_checks_memory = false;
  // Preempted requests return to the queue also where nothing was admitted in their place.
  bool preempted_return_without_admission = false;
  // A request that comes back weighs its tokens when it preempts, before it is matched again.
  bool preemption_counts_known_tokens = false;
  // An aborted request leaves between the chunks of its prompt; before, its prefill went on to the end.
  bool abort_ends_chunks = false;
  // An abort reaches requests of every micro-batch; before, those of the next one and of the pass
  // before.
  bool abort_reaches_micro_batches = false;

  // ---- prefill and decode split ----

  // A decode server asks for the pages of a prompt, not for its tokens.
  bool preallocation_counts_pages = false;
  // A prefill server captures prefills as others do, and no decode.
  bool prefill_server_captures_prefills = false;
  // A decode server keeps memory free for a step of its requests, and not for a prefill.
  bool decode_server_reserves_for_decodes = false;

  // ---- cache ----

  // Eviction frees what is short, not the whole demand.
  bool evict_shortfall = false;
  // A sequence is split at the end of its prompt, whose priority is one higher.
  bool split_at_prompt_end = false;
  // Both halves of a split node have its creation time.
  bool split_keeps_creation_time = false;
  // A request counts one hit for a node (lfu), however often it inserts through it.
  bool request_hits_node_once = false;
  // Every 32nd pass the cached prefixes of the first 128 waiting requests count as used (lru).
  bool refresh_waiting_prefixes = false;

  // ---- host tier ----

  // The kernels that copy to host memory go with fa3's decode; before, one of both gives way.
  bool host_kernels_beside_fa3 = false;
  // Host memory is page_first where nothing is said; before, layer_first.
  bool host_pages_first = false;
  // A pool in host memory that is no larger than the device's is taken.
  bool host_tier_may_be_small = false;
  // Prefill is captured beside it.
  bool host_tier_captures_prefills = false;
  // Only what is admitted is loaded back.
  bool loads_what_it_admits = false;

  // ---- speculative decoding ----

  // Every speculative algorithm reserves for two steps and may overlap; before, trees and NGRAM did not.
  bool speculation_is_v2 = false;
  // With speculative decoding, too, the request with the fewest tokens gives way first, not the last
  // one.
  bool speculation_retracts_by_length = false;
  // --enable-mixed-chunk holds with EAGLE, too: beside a chunk of prefill requests decode a token each.
  bool heads_mix_chunks = false;
  // What is reserved for two speculative steps ends with a page, and nothing is evicted where it
  // suffices.
  bool speculation_reserves_whole_pages = false;
  // The KV of the token sampled last counts when its step's result comes, not when the step is formed.
  bool speculation_counts_what_arrived = false;
  // Of a request that ends within what a step accepted, only what its client sees is cached.
  bool speculation_caches_to_the_stop = false;
  // Where a speculative step reaches an end of sequence and the longest output, the former ends the
  // answer.
  bool end_of_sequence_beats_length = false;
  // The draft model's weights and KV lessen the pool; before, 4 or 6 GiB were kept free for it.
  bool draft_model_from_pool = false;
  // The draft model's extend is captured with flashinfer (no MLA) and trtllm_mha, too.
  bool draft_extend_graphs_with_flashinfer = false;
  // The draft model's extend is captured with fa3, fa4 and flashmla, too.
  bool draft_extend_graphs_with_flash_attention = false;

  // ---- CUDA graphs ----

  // Prefill is captured in pieces by default (torch.compile's); before, every prefill is launched eagerly.
  bool captures_prefills = false;
  // Also with speculative decoding.
  bool speculation_captures_prefills = false;
  // Also where FlashInfer's TensorRT-LLM kernels run the experts.
  bool captures_prefills_beside_trtllm_experts = false;
  // The pieces are cut by hand and not by torch.compile: Qwen3-Next's prefill is captured, too.
  bool prefill_pieces_are_breakable = false;
  // Captured pieces do not take MLA's prefill.
  bool mla_prefill_is_eager = false;
  // Prefill of Qwen3.5, whose class is multimodal, is captured.
  bool captures_qwen3_5_prefills = false;

  // No prefill of DeepseekV3ForCausalLM is captured with trtllm_mla.
  bool deepseek_v3_prefill_may_be_eager = false;
  // --disable-cuda-graph turns the graphs of prefill off, too.
  bool disable_cuda_graph_is_for_prefill_too = false;
  // torch_native runs prefill, too, without graphs.
  bool torch_native_prefill_is_eager = false;
  // Prefill of MLA models is captured up to 8,192 tokens instead of 2,048.
  bool mla_prefill_graphs_to_8192 = false;
  // A prefill whose captured size is more than twice its tokens runs without graphs.
  bool prefill_graphs_limit_padding = false;
  // Prefill of DeepSeek-V3.2 and GLM-5 is captured in pieces, too.
  bool sparse_attention_prefills_in_pieces = false;
  // Prefill is captured with data-parallel attention or an all-to-all, too; all ranks replay or none.
  bool dp_attention_prefill_graphs = false;
  // GPUs of 20 to 35 GiB prefill chunks of 4,096 tokens and capture decodes of up to 48 or 160 requests.
  bool larger_batches_below_35_gib = false;
  // Without graphs of decode no memory is kept free for them.
  bool uncaptured_decode_reserves_nothing = false;
  // By default no decode larger than --max-running-requests is captured.
  bool captured_sizes_end_at_running_requests = false;

  // ---- kernels, where no flag names them ----

  // Of which classes sums over ranks and norms are fused (rank::ArchitectureFacts::fuses_all_reduces): more
  // in each release. Before 0.5.7 on Blackwell only.
  std::uint8_t fuses_all_reduces = 1;
  bool fuses_all_reduces_on_hopper = false;

  // flashinfer_trtllm runs 16-bit experts of the models that it was chosen for in fp8 before, and GLM-4.5's
  // in nvfp4.
  bool trtllm_runs_more_experts = false;
  // Triton's decodes of MLA have as many splits as multiprocessors; before, as many as MHA's.
  bool mla_splits_fill_device = false;
  // Which routers multiply in fp32 (rank::ArchitectureFacts::fp32_router).
  std::uint8_t fp32_routers = 1;
  // How many of the models' classes run shared experts on a second stream (ArchitectureFacts::second_stream).
  std::uint8_t second_streams = 1;
  // FlashMLA's sparse attention ends where a query's list of tokens does, and not behind all its places.
  bool sparse_lists_have_lengths = false;
  // One kernel chooses of experts without groups where none is a fused shared one …
  bool one_kernel_routes_ungrouped = false;
  // … and of more than 512, or more than eight of a token, in any case.
  bool one_kernel_routes_many = false;

  // ---- front end ----

  // What an answer has goes on by reference with each of its tokens; before, all its ids are copied.
  bool hands_answers_on_uncopied = false;

  // What the host does for a pass that decodes, in those of one that prefills (scheduler_step_seconds).
  double decode_steps = 1;

  // ---- images ----

  // Images of a batch are encoded together; before, each request's by themselves.
  bool encodes_images_of_all_requests = false;
  // Qwen3-VL is served on a large Hopper GPU with settings that were profiled for it.
  bool qwen3_vl_is_profiled = false;
  // What image embeddings will take is kept out of the KV pool.
  bool reserves_image_memory = false;

  // ---- window layers and layers with a recurrence ----

  // The pool of window layers is sized as tpsim does it; in which way older releases do was not looked at.
  bool sizes_window_pool = false;
  // Where nothing is said the radix cache keeps snapshots of gated delta-net states (extra_buffer); before,
  // states at the end of a sequence only, without overlap scheduling (no_buffer).
  bool snapshots_states = false;

  // DeepSeek's router multiplies into fp32, so that dummy weights do not send all tokens to the same experts.
  bool deepseek_routes_in_fp32 = false;
  // Without them speculation is refused beside cached states; before, the radix cache was turned off.
  bool cached_states_refuse_speculation = false;
  // A backend without pages of one token (attention::BackendRow::uncaches_states) is refused beside states
  // cached without snapshots; before, the radix cache was turned off.
  bool cached_states_refuse_backends = false;
  // Classes whose cached states turn overlap scheduling off
  // (rank::ArchitectureFacts::overlaps_beside_states).
  std::uint8_t serial_states = 0;
  // FlashInfer's kernels prefill gated delta-net layers by default where they can.
  bool flashinfer_prefills_delta_nets = false;
  // Gemma 3's norms of the residual are kernels, two of them with its sums; those of queries and keys stay
  // PyTorch's.
  bool gemma3_norms_are_kernels = false;
  // Norms, activations, routers and sums over experts start while the kernel before them ends (programmatic
  // dependent launch); few rows are aligned to their experts by one kernel instead of two, and
  // triton_kernels route in fewer and shorter ones.
  bool small_kernels_overlap = false;
  // Triton tunes the tiles of Mamba 2's scan; before, they were of 16 by 16 elements.
  bool tunes_scans = false;
  // Its parser has the newer names of flags (--attn-dp-size, --cuda-graph-max-bs-decode …).
  bool renames_flags = false;
  // Attention backends that were dropped (attention::BackendRow::dropped) are no choices of its parser.
  bool refuses_dropped_backends = false;
};

struct SglangRelease {
  std::string_view name;  // "0.5.23"
  ReleaseRules rules;

  friend bool operator==(const SglangRelease& a, const SglangRelease& b) { return a.name == b.name; }
};

// All of them, ascending; and the one whose rules hold where the user names none. The list (list.cc).
std::span<const SglangRelease> sglang_releases();
const SglangRelease& default_release();
std::vector<std::string_view> sglang_release_names();
// The first release in which `rule` holds. REQUIRES: there is one.
const SglangRelease& first_release_with(bool ReleaseRules::*rule);
// Throws UserError for a name that none has.
const SglangRelease& parse_sglang_release(std::string_view name);

// One file each.
SglangRelease v0_5_6();
SglangRelease v0_5_8();
SglangRelease v0_5_10();
SglangRelease v0_5_12();
SglangRelease v0_5_14();
SglangRelease v0_5_15();
SglangRelease v0_5_16();
SglangRelease v0_5_23();

}  // namespace tpsim::scheduler
