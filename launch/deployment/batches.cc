#include "launch/deployment/batches.h"

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/llm/memory.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

// Models of dual chunk attention have rules of their own for pages and prefixes.
void apply_dual_chunks(const rank::ModelConfig& model, std::uint32_t page_size, Batches& out) {
  const rank::DualChunkConfig& dual_chunk = model.dual_chunk;
  if (dual_chunk.enabled() && dual_chunk.chunk_len() % page_size != 0) {
    throw_user_error(
        "--page-size {}: must divide the {} tokens of a chunk (chunk_size less local_size of {}'s "
        "dual_chunk_attention_config)",
        page_size, dual_chunk.chunk_len(), model.name);
  }
  if (dual_chunk.enabled() && (out.switches.mixed_chunk || out.switches.radix_cache)) {
    // server_args.py of 0.5.12, _handle_attention_backend_compatibility
    say(out.notes, "dual_chunk_flash_attn: mixed chunks and the radix cache are off, as in SGLang");
    out.switches.mixed_chunk = false;
    out.switches.radix_cache = false;
  }
}

// What data-parallel attention changes in the options of one data-parallel rank (SGLang 0.5
// _handle_data_parallelism): a share of the chunk, a lower conservativeness.
void apply_data_parallelism(const ServerArgs& args, const rank::ParallelLayout& layout,
                            std::uint32_t page_size, Batches& out) {
  scheduler::DataParallelConfig& dp = out.data_parallel;
  dp.size = layout.dp_size;
  dp.gathers_mlp = layout.gathers_mlp();
  dp.load_balance = args.parallel.load_balance;
  if (layout.dp_size == 1) return;
  constexpr double kConservativeness = 0.3;
  out.schedule_conservativeness *= kConservativeness;
  if (out.whole_chunk == 0) return;
  out.chunk = out.whole_chunk / layout.dp_size;
  if (out.chunk == 0 || out.chunk % page_size != 0)
    throw_user_error(
        "--chunked-prefill-size {}: each of --dp-size {} data-parallel ranks has {} tokens of it, which must "
        "be a multiple of --page-size {}",
        out.whole_chunk, layout.dp_size, out.chunk, page_size);
}

// What a GPU may hand to DeepEP's kernels for low latency at once
// (SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK).
void check_dispatched_tokens(const BatchArgs& args, const rank::ParallelLayout& layout, std::uint32_t chunk) {
  constexpr std::uint32_t kMost = 128;
  if (!layout.a2a() || layout.deepep_mode != rank::DeepEpMode::kLowLatency) return;
  const std::uint32_t most = kMost * layout.attn_tp_size();
  if (chunk == 0 || chunk > most)
    throw_user_error(
        "--deepep-mode low_latency: hands on at most {} tokens of a GPU at once, and a prefill of {} tokens "
        "has more; use auto, or --chunked-prefill-size {}",
        kMost, chunk == 0 ? args.max_prefill_tokens : chunk, most * layout.dp_size);
}

}  // namespace

Batches resolve_batches(const ServerArgs& args, const proto::HardwareProfile& hardware,
                        const rank::ModelConfig& model, const rank::ParallelLayout& layout,
                        std::uint32_t page_size, Switches switches) {
  if (args.scheduler_recv_interval > 1 && layout.dp_size > 1)
    throw_user_error("--scheduler-recv-interval {}: is not for data-parallel attention; leave it out",
                     args.scheduler_recv_interval);
  Batches out;
  out.switches = switches;
  apply_dual_chunks(model, page_size, out);
  out.schedule_conservativeness = args.schedule_conservativeness;
  const std::int64_t chunk = args.chunked_prefill_size.value_or(
      rank::default_batches(hardware, args.tp_size, args.sglang_release.rules.larger_batches_below_35_gib)
          .chunked_prefill_size);
  out.whole_chunk = out.chunk = chunk > 0 ? static_cast<std::uint32_t>(chunk) : 0;
  if (out.chunk % page_size != 0)
    throw_user_error("--chunked-prefill-size {}: must be a multiple of --page-size {}", out.chunk, page_size);
  apply_data_parallelism(args, layout, page_size, out);
  check_dispatched_tokens(args, layout, out.chunk);
  return out;
}

scheduler::SchedulerConfig with_batches(scheduler::SchedulerConfig config, const ServerArgs& args,
                                        const Batches& batches) {
  config.sglang_release = args.sglang_release;
  config.max_prefill_tokens = args.max_prefill_tokens;
  config.schedule_policy = args.schedule_policy;
  config.priority = args.priority;
  config.retraction_policy = args.retraction_policy;
  config.radix_eviction_policy = args.radix_eviction_policy;
  config.recv_interval = args.scheduler_recv_interval;
  config.chunked_prefill_size = batches.chunk;
  config.schedule_conservativeness = batches.schedule_conservativeness;
  config.data_parallel = batches.data_parallel;
  return config;
}

void write_batches(const scheduler::SchedulerConfig& config, Rows& rows) {
  rows["max_prefill_tokens"] = std::to_string(config.max_prefill_tokens);
  rows["chunked_prefill_size"] =
      config.chunked_prefill_size == 0 ? "-1" : std::to_string(config.chunked_prefill_size);
  rows["enable_mixed_chunk"] = on_off(config.enable_mixed_chunk);
  if (config.recv_interval > 1) rows["scheduler_recv_interval"] = std::to_string(config.recv_interval);
  rows["schedule_policy"] = to_string(config.schedule_policy);
  rows["sglang_version"] = config.sglang_release.name;
  rows["enable_priority_scheduling"] = on_off(config.priority.enable_scheduling);
  if (config.priority.enable_scheduling) {
    rows["schedule_low_priority_values_first"] = on_off(config.priority.low_values_first);
    rows["disable_priority_preemption"] = on_off(config.priority.disable_preemption);
    rows["priority_scheduling_preemption_threshold"] = std::to_string(config.priority.preemption_threshold);
  }
  rows["retraction_policy"] = to_string(config.retraction_policy);
  rows["schedule_conservativeness"] = format_real(config.schedule_conservativeness);
  rows["disable_radix_cache"] = on_off(config.disable_radix_cache);
  rows["radix_eviction_policy"] = to_string(config.radix_eviction_policy);
  rows["disable_overlap_schedule"] = on_off(config.disable_overlap_schedule);
}

}  // namespace tpsim::launch
