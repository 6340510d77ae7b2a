#include "launch/deployment_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kvcache/page_allocator.h"
#include "launch/images.h"
#include "launch/linear_attention_choice.h"
#include "launch/parallel_args.h"
#include "proto/base/error.h"
#include "rank/model/layers.h"
#include "rank/model/vision_encoder.h"
#include "rank/parallel/rank_state.h"
#include "rank/parallel/slowdown.h"
#include "scheduler/sglang_release.h"

namespace tpsim::launch {
namespace {

// --max-running-requests with speculative decoding (speculative_hook.py).
constexpr std::uint32_t kSpeculativeRunningRequests = 48;

// SGLang captures the listed sizes that the request table has room for, and the table's size itself where
// the list goes beyond it.
std::vector<std::uint32_t> captured_sizes(std::vector<std::uint32_t> sizes, std::uint32_t max_running) {
  if (!sizes.empty() && sizes.back() > max_running) {
    std::erase_if(sizes, [max_running](std::uint32_t size) { return size > max_running; });
    if (sizes.empty() || sizes.back() < max_running) sizes.push_back(max_running);
  }
  return sizes;
}

// Numeric execution has no GPU memory to divide: 65,536 tokens, or what 4 GiB hold on all ranks together.
// A fixed rule, so that every process comes to the same.
rank::KvCapacity numeric_capacity(const ServerArgs& args, const rank::Shard& shard,
                                  const Deployment& deployment, const rank::WindowPool& windows) {
  constexpr std::uint64_t kTokens = 65536;
  constexpr std::uint64_t kBytes = std::uint64_t{4} << 30;
  rank::KvCapacity capacity;
  capacity.kv_bytes_per_token =
      rank::kv_bytes_per_token(deployment.model, shard, deployment.kv_format, deployment.sparse_token_bytes);
  const std::uint64_t page = deployment.scheduler.page_size;
  const std::uint64_t fit = kBytes / (capacity.kv_bytes_per_token * args.tp_size);
  capacity.tokens = args.max_total_tokens.value_or(std::min(kTokens, std::max(fit, page))) / page * page;
  if (deployment.model.is_hybrid_linear() && !deployment.scheduler.disable_radix_cache) {
    // In fp32, for as many requests as the pool's tokens are worth of, or what 1 GiB holds of more.
    capacity.state_bytes = rank::linear_layers(deployment.model, shard).bytes_per_request();
    constexpr std::uint64_t kStateBytes = std::uint64_t{1} << 30;
    const std::uint64_t least = state_slots_per_request(deployment.scheduler) * std::uint64_t{16};
    capacity.state_slots =
        args.max_mamba_cache_size
            ? *args.max_mamba_cache_size / deployment.layout.dp_size
            : std::clamp<std::uint64_t>(kStateBytes / (capacity.state_bytes * args.tp_size), least, 4096);
  }
  if (windows.window > 0) {
    // The ranks keep window layers' KV at every page; the pool of windows bounds what the scheduler hands
    // out.
    capacity.window_tokens =
        rank::window_pool_tokens(windows, capacity.tokens, deployment.scheduler.page_size);
  }
  return capacity;
}

// Running requests have states, some of them more than one.
void limit_by_states(std::uint64_t slots, scheduler::SchedulerConfig& config) {
  const std::uint32_t each = state_slots_per_request(config);
  const std::uint64_t most = std::min<std::uint64_t>(slots / each, config.max_running_requests);
  if (most == 0)
    throw_user_error(
        "--max-mamba-cache-size {}: a running request takes {} states; use a larger pool, or "
        "--disable-radix-cache",
        slots, each);
  config.max_running_requests = static_cast<std::uint32_t>(most);
  if (!config.disable_radix_cache)
    config.states.slots = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(slots, std::numeric_limits<std::uint32_t>::max() / 2));
}

// What a user may not expect of a server that speculates.
void note_speculation_memory(const ServerArgs& args, Deployment& deployment) {
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  if (!config.speculation.enabled()) return;
  const std::uint32_t dp_size = deployment.layout.dp_size;
  if (dp_size > 1 && !args.max_running_requests)
    deployment.notes.push_back(fmt::format(
        "--max-running-requests: {}, SGLang's choice for speculative decoding, which are {} on each of "
        "{} data-parallel ranks",
        kSpeculativeRunningRequests, config.max_running_requests, dp_size));
  if (deployment.verified_state_bytes > 0)
    deployment.notes.push_back(
        fmt::format("states of gated delta-net layers behind the {} tokens that a step verifies take {:.2f} "
                    "GiB of each GPU",
                    config.speculation.num_draft_tokens,
                    static_cast<double>(deployment.verified_state_bytes) / (std::uint64_t{1} << 30)));
}

}  // namespace

void check_window_flags(const ServerArgs& args, const rank::ModelConfig& model) {
  if (!args.swa_full_tokens_ratio) return;
  if (args.disable_hybrid_swa_memory)
    throw_user_error("--swa-full-tokens-ratio: there is no pool to size with --disable-hybrid-swa-memory");
  if (model.swa_pool_window == 0)
    throw_user_error("--swa-full-tokens-ratio: SGLang gives {} no pool of window layers; leave it out",
                     model.name);
}

void read_state_flags(const ServerArgs& args, rank::ModelConfig& model) {
  const char* given = args.mamba_full_memory_ratio                ? "--mamba-full-memory-ratio"
                      : args.max_mamba_cache_size                 ? "--max-mamba-cache-size"
                      : args.mamba_ssm_dtype != "auto"            ? "--mamba-ssm-dtype"
                      : args.mamba_radix_cache_strategy != "auto" ? "--mamba-radix-cache-strategy"
                      : args.mamba_track_interval                 ? "--mamba-track-interval"
                      : !args.linear_attn_backend.empty()         ? "--linear-attn-backend"
                      : !args.linear_attn_decode_backend.empty()  ? "--linear-attn-decode-backend"
                      : !args.linear_attn_prefill_backend.empty() ? "--linear-attn-prefill-backend"
                                                                  : nullptr;
  if (given == nullptr) return;
  if (!model.is_hybrid_linear())
    throw_user_error("{}: {} has no gated delta-net layers; leave it out", given, model.name);
  if (args.mamba_ssm_dtype != "auto") model.linear.state_bytes = args.mamba_ssm_dtype == "float32" ? 4 : 2;
}

rank::StatePool state_pool(const ServerArgs& args, const Deployment& deployment) {
  rank::StatePool pool;
  pool.full_memory_ratio = args.mamba_full_memory_ratio.value_or(pool.full_memory_ratio);
  // Of one data-parallel rank. Without a radix cache each running request has one state, and no more are
  // needed.
  const std::uint32_t dp_size = deployment.layout.dp_size;
  const scheduler::SpeculationConfig& speculation = deployment.scheduler.speculation;
  const std::optional<std::uint32_t> most =
      speculation.enabled() ? args.max_running_requests.value_or(kSpeculativeRunningRequests)
                            : args.max_running_requests;
  if (deployment.scheduler.disable_radix_cache && most) pool.slots = std::max(1U, *most / dp_size);
  if (speculation.enabled()) {
    pool.verified_tokens = speculation.num_draft_tokens;
    pool.running_requests = std::max(1U, *most / dp_size);
    pool.slots_per_request = state_slots_per_request(deployment.scheduler);
  }
  if (args.max_mamba_cache_size) pool.slots = *args.max_mamba_cache_size / dp_size;
  return pool;
}

rank::WindowPool window_pool(const ServerArgs& args, const Deployment& deployment) {
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  rank::WindowPool pool;
  if (args.disable_hybrid_swa_memory) return pool;
  pool.window = deployment.model.swa_pool_window;
  pool.full_tokens_ratio = args.swa_full_tokens_ratio.value_or(pool.full_tokens_ratio);
  // SWARequestCapPoolConfigurator: where it is known how many run, and nothing else is kept.
  if (pool.window > 0 && config.disable_radix_cache && args.max_running_requests &&
      config.chunked_prefill_size > 0) {
    pool.tokens = rank::most_window_tokens(pool.window, config.page_size,
                                           *args.max_running_requests / deployment.layout.dp_size,
                                           config.chunked_prefill_size, !config.disable_overlap_schedule);
  }
  return pool;
}

void resolve_memory(const ServerArgs& args, double mem_fraction_static, Deployment& deployment) {
  scheduler::SchedulerConfig& config = deployment.scheduler;
  const rank::WindowPool windows = window_pool(args, deployment);
  // Every pipeline stage has the pool of the one with the least room (SGLang's _apply_token_constraints).
  rank::KvCapacity capacity;
  std::vector<rank::KvCapacity> stages;
  for (std::uint32_t stage = 0; stage < deployment.stages.size(); ++stage) {
    const rank::ModelConfig model = deployment.model_of_stage(stage);
    const rank::Shard shard = deployment.shard_of(model, 0, stage);
    stages.push_back(args.numeric()
                         ? numeric_capacity(args, shard, deployment, windows)
                         : rank::kv_capacity(deployment.hardware, model, shard, mem_fraction_static,
                                             deployment.kv_format, config.page_size,
                                             state_pool(args, deployment), deployment.sparse_token_bytes,
                                             windows, deployment.draft_memory(args)));
    deployment.ranks.stage_kv_bytes.push_back(stages.back().kv_bytes_per_token);
    deployment.stage_tokens.push_back(stages.back().tokens);
    deployment.swa_bytes_per_token.push_back(stages.back().window_bytes_per_token);
    if (stage == 0 || stages.back().tokens < capacity.tokens) capacity = stages.back();
  }
  config.max_total_num_tokens = capacity.tokens;
  deployment.state_slots = capacity.state_slots;
  deployment.verified_state_bytes = capacity.verified_state_bytes;
  if (args.max_total_tokens) {
    const std::uint64_t asked = *args.max_total_tokens / config.page_size * config.page_size;
    if (asked == 0)
      throw_user_error("--max-total-tokens {}: is less than one page of --page-size {}",
                       *args.max_total_tokens, config.page_size);
    if (asked > capacity.tokens)
      deployment.notes.push_back(
          fmt::format("--max-total-tokens {}: only {} tokens fit, which are used instead",
                      *args.max_total_tokens, capacity.tokens));
    config.max_total_num_tokens = std::min(asked, capacity.tokens);
  }
  const std::uint64_t most = rank::RankState::kMaxTokens / config.page_size * config.page_size;
  if (config.max_total_num_tokens > most) {
    deployment.notes.push_back(
        fmt::format("the KV pool would hold {} tokens; {} are simulated", config.max_total_num_tokens, most));
    config.max_total_num_tokens = most;
  }
  if (windows.window > 0) {
    config.sliding_window_size = windows.window;
    config.swa_max_total_num_tokens =
        rank::window_pool_tokens(windows, config.max_total_num_tokens, config.page_size);
    if (config.sglang_release != scheduler::kNewestRelease)
      deployment.notes.push_back(
          fmt::format("--sglang-version {}: window layers' pool follows the rules of {}",
                      scheduler::sglang_release_name(config.sglang_release),
                      scheduler::sglang_release_name(scheduler::kNewestRelease)));
  }
  // Rows of the request-to-page table that ranks can hold (rank/parallel/rank_state.h).
  constexpr std::uint32_t kMaxRows = 65535;
  config.max_running_requests = args.max_running_requests.value_or(
      config.speculation.enabled()
          ? kSpeculativeRunningRequests
          : rank::default_max_running_requests(config.max_total_num_tokens, config.context_length));
  if ((args.max_running_requests || config.speculation.enabled()) && deployment.layout.dp_size > 1) {
    config.max_running_requests /= deployment.layout.dp_size;
    if (!args.max_running_requests) config.max_running_requests = std::max(1U, config.max_running_requests);
    if (config.max_running_requests == 0)
      throw_user_error("--max-running-requests {}: leaves none to some of --dp-size {} data-parallel ranks",
                       *args.max_running_requests, deployment.layout.dp_size);
  }
  if (capacity.state_slots > 0) limit_by_states(capacity.state_slots, config);
  note_speculation_memory(args, deployment);
  if (config.max_running_requests > kMaxRows)
    throw_user_error("--max-running-requests {}: at most {} are simulated", config.max_running_requests,
                     kMaxRows);
  config.cuda_graph_bs = captured_sizes(std::move(config.cuda_graph_bs), config.max_running_requests);
  align_captured_sizes(deployment.layout, config);

  rank::DeploymentConfig& ranks = deployment.ranks;
  ranks.tp_size = args.tp_size;
  ranks.dp_size = deployment.layout.dp_size;
  if (!args.numeric())
    ranks.images = make_image_encoder(deployment.hardware, deployment.layout, deployment.model);
  ranks.pp_size = config.pipeline.size;
  ranks.slowdown = rank::parse_rank_slowdowns(args.rank_slowdown, ranks.num_ranks());
  ranks.state.page_size = config.page_size;
  // Page numbers: the allocator's address space is larger than the pool.
  ranks.state.num_pages = kvcache::PageAllocator::with_slack(
      static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size));
  ranks.state.kv_bytes_per_token = capacity.kv_bytes_per_token;
  ranks.state.max_requests = kMaxRows;
  ranks.state.check = args.check_invariants;
  for (std::uint32_t r = 0; r < ranks.num_ranks(); ++r) {
    const std::uint32_t stage = r / args.tp_size;
    const rank::ModelConfig model = deployment.model_of_stage(stage);
    const rank::Shard of_rank = deployment.shard_of(model, r % args.tp_size, stage);
    proto::RankReport report;
    report.set_rank(r);
    report.add_q_heads(of_rank.q_heads.first);
    report.add_q_heads(of_rank.q_heads.last);
    report.add_kv_heads(of_rank.kv_heads.first);
    report.add_kv_heads(of_rank.kv_heads.last);
    report.set_slowdown(ranks.slowdown[r]);
    report.set_weight_bytes(rank::weight_bytes(model, of_rank));
    if (model.vision.served)
      report.set_vision_weight_bytes(rank::vision_weight_bytes(
          model.vision, {deployment.layout.attn_tp_size(), model.vision.replicated}));
    report.set_kv_pool_bytes(config.max_total_num_tokens * stages[stage].kv_bytes_per_token +
                             config.swa_max_total_num_tokens * stages[stage].window_bytes_per_token);
    ranks.ranks.push_back(std::move(report));
  }
}

}  // namespace tpsim::launch
