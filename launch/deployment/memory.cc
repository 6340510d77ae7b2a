#include "launch/deployment/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "attention/selection/registry.h"
#include "launch/deployment/images.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/llm/layers.h"
#include "rank/parallel/rank_state.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

// Numeric execution has no GPU memory to divide: 65,536 tokens, or what 4 GiB hold on all ranks together.
// A fixed rule, so that every process comes to the same.
rank::KvCapacity numeric_capacity(const ServerArgs& args, const rank::Shard& shard,
                                  const rank::ModelConfig& model, const AttentionChoice& attention,
                                  std::uint32_t sparse_token_bytes, std::uint32_t dp_size,
                                  const States& states, const rank::WindowPool& windows) {
  constexpr std::uint64_t kTokens = 65536;
  constexpr std::uint64_t kBytes = std::uint64_t{4} << 30;
  rank::KvCapacity capacity;
  capacity.kv_bytes_per_token =
      rank::kv_bytes_per_token(model, shard, attention.kv_format, sparse_token_bytes);
  const std::uint64_t page = attention.page_size;
  const std::uint64_t fit = kBytes / (capacity.kv_bytes_per_token * args.tp_size);
  capacity.tokens = args.max_total_tokens.value_or(std::min(kTokens, std::max(fit, page))) / page * page;
  if (model.is_hybrid_linear() && states.switches.radix_cache) {
    // In fp32, for as many requests as the pool's tokens are worth of, or what 1 GiB holds of more.
    capacity.state_bytes = rank::linear_layers(model, shard).bytes_per_request();
    constexpr std::uint64_t kStateBytes = std::uint64_t{1} << 30;
    const std::uint64_t least = states.slots_per_request * std::uint64_t{16};
    capacity.state_slots =
        args.max_mamba_cache_size
            ? *args.max_mamba_cache_size / dp_size
            : std::clamp<std::uint64_t>(kStateBytes / (capacity.state_bytes * args.tp_size), least, 4096);
  }
  if (windows.window > 0) {
    // The ranks keep window layers' KV at every page; the pool of windows bounds what the scheduler hands
    // out.
    capacity.window_tokens = rank::window_pool_tokens(windows, capacity.tokens, attention.page_size);
  }
  return capacity;
}

// Running requests have states, some of them more than one.
void limit_by_states(std::uint32_t each, Memory& memory) {
  const std::uint64_t slots = memory.state_slots;
  const std::uint64_t most = std::min<std::uint64_t>(slots / each, memory.max_running_requests);
  if (most == 0)
    throw_user_error(
        "--max-mamba-cache-size {}: a running request takes {} states; use a larger pool, or "
        "--disable-radix-cache",
        slots, each);
  memory.max_running_requests = static_cast<std::uint32_t>(most);
}

// What a user may not expect of a server that speculates.
void note_speculation_memory(const MemoryArgs& args, std::uint32_t dp_size, std::uint32_t draft_tokens,
                             Memory& memory) {
  if (dp_size > 1 && !args.max_running_requests)
    say(memory.notes,
        "--max-running-requests: {}, SGLang's choice for speculative decoding, which are {} on "
        "each of {} data-parallel ranks",
        kSpeculativeRunningRequests, memory.max_running_requests, dp_size);
  if (memory.verified_state_bytes > 0)
    say(memory.notes,
        "states of gated delta-net layers after the {} tokens that a step verifies take {:.2f} GiB of each "
        "GPU",
        draft_tokens, static_cast<double>(memory.verified_state_bytes) / (std::uint64_t{1} << 30));
}

// Whether window layers have a pool of their own, and how large it is to be.
rank::WindowPool window_pool(const MemoryArgs& args, const rank::ModelConfig& model, std::uint32_t page_size,
                             std::uint32_t dp_size, std::uint32_t chunk, Switches switches) {
  rank::WindowPool pool;
  if (args.disable_hybrid_swa_memory) return pool;
  pool.window = model.swa_pool_window;
  pool.full_tokens_ratio = args.swa_full_tokens_ratio.value_or(model.facts.window_share);
  if (model.is_compressed()) return pool;  // always by the ratio (DSV4PoolConfigurator)
  // SWARequestCapPoolConfigurator: where it is known how many run, and nothing else is kept.
  if (pool.window > 0 && !switches.radix_cache && args.max_running_requests && chunk > 0) {
    pool.tokens = rank::most_window_tokens(pool.window, page_size, *args.max_running_requests / dp_size,
                                           chunk, switches.overlap);
  }
  return pool;
}

// Of the largest pass that --mem-fraction-static leaves room for.
std::uint32_t activation_tokens(const ServerArgs& args, const scheduler::SpeculationConfig& speculation,
                                const Batches& batches, const Graphs& graphs) {
  if (args.decodes_alone && args.sglang_release.rules.decode_server_reserves_for_decodes) {
    const std::uint32_t open =
        speculation.enabled() ? kSpeculativeRunningRequests : std::max(graphs.reserved_decode_bs, 1U);
    return args.max_running_requests.value_or(open) * speculation.num_draft_tokens;
  }
  return batches.whole_chunk > 0 ? batches.whole_chunk : args.max_prefill_tokens;
}

// --mem-fraction-static, or what SGLang leaves for weights and KV on such a GPU.
double mem_fraction(const ServerArgs& args, const proto::HardwareProfile& hardware,
                    const rank::ModelConfig& model, const Speculation& speculation,
                    const AttentionChoice& attention, std::uint32_t dp_size, const Batches& batches,
                    const Graphs& graphs, std::uint32_t context_length) {
  const double fraction = args.mem_fraction_static.value_or(rank::default_mem_fraction(
      hardware, {.tp_size = args.tp_size * args.parallel.pp_size,
                 .dp_size = dp_size,
                 .activation_tokens = activation_tokens(args, speculation.config, batches, graphs),
                 .cuda_graph_max_bs = graphs.reserved_decode_bs,
                 .prefill_captures = graphs.reserved_prefills,
                 .mla = model.is_mla(),
                 .draft_mib = draft_reserve_mib(args, speculation)}));
  // Workspace of attention over long contexts.
  constexpr std::uint32_t kLongContext = 8192;
  const attention::BackendRow& prefill =
      attention::find_backend(attention.backends.prefill, "--prefill-attention-backend").row;
  const double images = args.mem_fraction_static ? 1 : image_memory_factor(model.vision);
  return images * (context_length > kLongContext ? fraction * prefill.long_context_memory : fraction);
}

}  // namespace

void check_window_flags(const MemoryArgs& args, const rank::ModelConfig& model) {
  if (args.disable_hybrid_swa_memory && model.is_compressed())
    throw_user_error(
        "--disable-hybrid-swa-memory: {} keeps its latents in a pool of windows always; leave it out",
        model.name);
  if (!args.swa_full_tokens_ratio) return;
  if (args.disable_hybrid_swa_memory)
    throw_user_error("--swa-full-tokens-ratio: there is no pool to size with --disable-hybrid-swa-memory");
  if (model.swa_pool_window == 0)
    throw_user_error("--swa-full-tokens-ratio: SGLang gives {} no pool of window layers; leave it out",
                     model.name);
}

Memory resolve_memory(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, const Speculation& speculation,
                      const AttentionChoice& attention, const SparseAttention& sparse,
                      const rank::ParallelLayout& layout, const Batches& batches, const States& states,
                      const Pipeline& pipeline, const Graphs& graphs, const rank::DraftMemory& draft,
                      std::uint32_t context_length) {
  const bool speculates = speculation.config.enabled();
  const std::uint32_t page_size = attention.page_size;
  Memory out;
  out.mem_fraction_static = mem_fraction(args, hardware, model, speculation, attention, layout.dp_size,
                                         batches, graphs, context_length);
  out.states = state_pool(args, states, speculation.config, layout.dp_size);
  out.windows = window_pool(args, model, page_size, layout.dp_size, batches.chunk, pipeline.switches);
  const rank::WindowPool& windows = out.windows;
  // Every pipeline stage has the pool of the one with the least room (SGLang's _apply_token_constraints).
  rank::KvCapacity capacity;
  for (std::uint32_t stage = 0; stage < pipeline.stages.size(); ++stage) {
    const rank::ModelConfig of_stage = pipeline.model_of_stage(model, stage);
    const rank::Shard shard = pipeline.shard_of(of_stage, layout, 0, stage);
    out.stages.push_back(args.numeric()
                             ? numeric_capacity(args, shard, model, attention, sparse.token_bytes,
                                                layout.dp_size, states, windows)
                             : rank::kv_capacity(hardware, of_stage, shard, out.mem_fraction_static,
                                                 attention.kv_format, page_size, out.states,
                                                 sparse.token_bytes, windows, draft));
    if (stage == 0 || out.stages.back().tokens < capacity.tokens) capacity = out.stages.back();
  }
  out.kv_bytes_per_token = capacity.kv_bytes_per_token;
  out.tokens = capacity.tokens;
  out.state_slots = capacity.state_slots;
  out.verified_state_bytes = capacity.verified_state_bytes;
  if (args.max_total_tokens) {
    const std::uint64_t asked = *args.max_total_tokens / page_size * page_size;
    if (asked == 0)
      throw_user_error("--max-total-tokens {}: is less than one page of --page-size {}",
                       *args.max_total_tokens, page_size);
    if (asked > capacity.tokens)
      say(out.notes, "--max-total-tokens {}: only {} tokens fit, which are used instead",
          *args.max_total_tokens, capacity.tokens);
    out.tokens = std::min(asked, capacity.tokens);
  }
  const std::uint64_t most = rank::RankState::kMaxTokens / page_size * page_size;
  if (out.tokens > most) {
    say(out.notes, "the KV pool would hold {} tokens; {} are simulated", out.tokens, most);
    out.tokens = most;
  }
  if (windows.window > 0) {
    out.window_tokens = rank::window_pool_tokens(windows, out.tokens, page_size);
    if (!args.sglang_release.rules.sizes_window_pool)
      say(out.notes, "--sglang-version {}: window layers' pool follows the rules of {}",
          args.sglang_release.name,
          scheduler::first_release_with(&scheduler::ReleaseRules::sizes_window_pool).name);
  }
  const std::uint32_t of_class = model.facts.running_requests;
  out.max_running_requests = args.max_running_requests.value_or(
      of_class > 0 ? of_class
      : speculates ? kSpeculativeRunningRequests
                   : rank::default_max_running_requests(out.tokens, context_length));
  if ((args.max_running_requests || speculates || of_class > 0) && layout.dp_size > 1) {
    out.max_running_requests /= layout.dp_size;
    if (!args.max_running_requests) out.max_running_requests = std::max(1U, out.max_running_requests);
    if (out.max_running_requests == 0)
      throw_user_error("--max-running-requests {}: leaves none to some of --dp-size {} data-parallel ranks",
                       *args.max_running_requests, layout.dp_size);
  }
  if (out.state_slots > 0) limit_by_states(states.slots_per_request, out);
  if (speculates && of_class == 0)
    note_speculation_memory(args, layout.dp_size, speculation.config.num_draft_tokens, out);
  if (out.max_running_requests > kMaxRunningRequests)
    throw_user_error("--max-running-requests {}: at most {} are simulated", out.max_running_requests,
                     kMaxRunningRequests);
  return out;
}

void write_memory(const Memory& memory, const rank::ModelConfig& model, Rows& rows) {
  rows["mem_fraction_static"] = format_real(memory.mem_fraction_static);
  rows["max_total_tokens"] = std::to_string(memory.tokens);
  rows["max_running_requests"] = std::to_string(memory.max_running_requests);
  if (model.swa_pool_window == 0) return;
  rows["disable_hybrid_swa_memory"] = on_off(memory.windows.window == 0);
  if (memory.windows.window == 0) return;
  rows["swa_full_tokens_ratio"] = format_real(memory.windows.full_tokens_ratio);
  rows["swa_max_total_num_tokens"] = std::to_string(memory.window_tokens);
}

}  // namespace tpsim::launch
