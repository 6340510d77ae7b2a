#include "launch/deployment/batches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "attention/selection/registry.h"
#include "launch/deployment/hicache.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/cost/matrix_kernel.h"
#include "rank/llm/layers.h"
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

// DeepEP's kernels for throughput cannot be captured, so SGLang captures nothing (_handle_a2a_moe).
bool never_captured(const rank::ParallelLayout& layout) {
  return layout.a2a() && layout.deepep_mode == rank::DeepEpMode::kNormal;
}

// Whether a release captures prefill of this model, where no flag says otherwise.
bool captures_prefills(const ServerArgs& args, const proto::HardwareProfile& hardware,
                       const rank::ModelConfig& model, const rank::ParallelLayout& layout) {
  const scheduler::ReleaseRules& rules = args.sglang_release.rules;
  if (!rules.captures_prefills || model.facts.eager_prefill) return false;
  if (!args.speculation.algorithm.empty() && !rules.speculation_captures_prefills) return false;
  if (model.is_mla() && rules.mla_prefill_is_eager) return false;
  if (model.is_sparse() && !rules.sparse_attention_prefills_in_pieces) return false;
  if (model.facts.not_in_compiled_pieces && !rules.prefill_pieces_are_breakable) return false;
  // Other multimodal models served as such: none of those simulated is among SGLang's exceptions.
  if (model.vision.served || (model.facts.multimodal && !rules.captures_qwen3_5_prefills)) return false;
  if (rules.captures_prefills_beside_trtllm_experts || model.moe.num_layers == 0) return true;
  const std::vector<rank::WeightSpec> weights = rank::weight_list(model, rank::make_shard(model, layout, 0));
  return std::none_of(weights.begin(), weights.end(), [&](const rank::WeightSpec& weight) {
    return weight.role == rank::WeightRole::kExperts &&
           rank::chooses_trtllm(model.facts.trtllm_experts, weight.format, hardware);
  });
}

// The captured sizes of prefill that the flags ask for: up to a chunk, or less with MLA.
std::vector<std::uint32_t> prefill_captures(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                            const rank::ModelConfig& model,
                                            const rank::ParallelLayout& layout, bool eager,
                                            std::uint32_t chunk) {
  const scheduler::ReleaseRules rules = args.sglang_release.rules;
  const bool plain = layout.dp_size == 1 && !layout.a2a();
  // Two halves of a batch prefill eagerly, and pipeline stages unless asked by a flag of SGLang that tpsim
  // does not have (0.5.12's server_args.py _handle_piecewise_cuda_graph, 0.5.23's
  // arg_groups/cuda_graph_hook.py).
  if (eager || !hicache_captures_prefills(args)) return {};
  if (args.disable_prefill_cuda_graph || never_captured(layout) ||
      (!plain && !rules.dp_attention_prefill_graphs) || !rank::default_graphs(hardware).prefill ||
      (args.disable_cuda_graph && rules.disable_cuda_graph_is_for_prefill_too) ||
      !captures_prefills(args, hardware, model, layout))
    return {};
  if (!args.prefill_cuda_graph_tokens.empty()) return args.prefill_cuda_graph_tokens;
  std::uint64_t most = chunk;
  if (model.is_mla()) most = rules.mla_prefill_graphs_to_8192 ? std::min<std::uint64_t>(most, 8192) : 2048;
  if (args.max_total_tokens) most = std::min(most, *args.max_total_tokens);
  if (args.context_length) most = std::min<std::uint64_t>(most, *args.context_length);
  most = args.prefill_cuda_graph_max_tokens.value_or(static_cast<std::uint32_t>(most));
  return rank::capture_prefill_tokens(static_cast<std::uint32_t>(most));
}

}  // namespace

Batches resolve_batches(const ServerArgs& args, const proto::HardwareProfile& hardware,
                        const rank::ModelConfig& model, const rank::ParallelLayout& layout,
                        std::uint32_t page_size, Switches switches) {
  if (args.scheduler_recv_interval > 1 && layout.dp_size > 1)
    throw_user_error("--scheduler-recv-interval {}: is not for data-parallel attention; leave it out",
                     args.scheduler_recv_interval);
  if (args.prefill_delayer.enabled) {
    if (!switches.overlap)
      throw_user_error("--enable-prefill-delayer: needs overlap scheduling; leave it out");
    if (args.parallel.pp_size > 1 || (args.priority.enable_scheduling && !args.priority.disable_preemption))
      throw_user_error(
          "--enable-prefill-delayer: is not simulated with pipeline stages or requests that preempt others; "
          "leave it out");
  }
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
  config.prefill_delayer = args.prefill_delayer;
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
  if (config.prefill_delayer.enabled) rows["enable_prefill_delayer"] = "true";
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

Graphs resolve_graphs(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, const AttentionChoice& attention,
                      const rank::ParallelLayout& layout, const Batches& batches, bool eager_prefill) {
  const scheduler::ReleaseRules rules = args.sglang_release.rules;
  const bool speculates = !args.speculation.algorithm.empty();
  Graphs out;
  std::uint32_t max_bs =
      rank::default_batches(hardware, args.tp_size, rules.larger_batches_below_35_gib).cuda_graph_max_bs;
  if (args.max_running_requests && rules.captured_sizes_end_at_running_requests)
    max_bs = std::min(max_bs, *args.max_running_requests);
  max_bs = args.cuda_graph_max_bs.value_or(max_bs);
  out.decode =
      args.cuda_graph_bs.empty() ? rank::capture_batch_sizes(max_bs, speculates) : args.cuda_graph_bs;
  out.prefill.tokens = prefill_captures(args, hardware, model, layout, eager_prefill, batches.whole_chunk);
  out.prefill.limit_padding = rules.prefill_graphs_limit_padding;
  out.reserved_prefills = static_cast<std::uint32_t>(out.prefill.tokens.size());

  const bool on_device = rank::default_graphs(hardware).decode;
  const bool decodes_eagerly =
      args.disable_cuda_graph || args.disable_decode_cuda_graph || !on_device || never_captured(layout);
  if (!decodes_eagerly || !rules.uncaptured_decode_reserves_nothing)
    out.reserved_decode_bs = out.decode.back();
  const auto captures = [](const std::string& backend, const char* flag) {
    return attention::find_backend(backend, flag).row.supports_cuda_graph;
  };
  // The half that verifies is what is captured.
  const bool by_prefill = speculates && args.speculation.verifies_with_prefill();
  const std::string& captured = by_prefill ? attention.backends.prefill : attention.backends.decode;
  if (decodes_eagerly || !captures(captured, "--decode-attention-backend")) {
    if (!on_device)
      say(out.notes, "{}: decode is not captured on this device", hardware.name());
    else if (never_captured(layout))
      say(out.notes, "--deepep-mode normal: cannot be captured, so nothing runs in CUDA graphs");
    else if (!decodes_eagerly)
      say(out.notes, "{}: cannot be captured, so decode runs without CUDA graphs", captured);
    out.decode.clear();
  }
  if (rules.torch_native_prefill_is_eager &&
      !captures(attention.backends.prefill, "--prefill-attention-backend"))
    out.prefill.tokens.clear();
  if (layout.dp_size > 1 && batches.chunk > 0)
    std::erase_if(out.prefill.tokens, [&](std::uint32_t tokens) { return tokens > batches.chunk; });
  const attention::BackendRow& prefill =
      attention::find_backend(attention.backends.prefill, "--prefill-attention-backend").row;
  if (rules.deepseek_v3_prefill_may_be_eager && prefill.eager_deepseek_v3_prefill &&
      model.facts.may_prefill_eagerly && !out.prefill.tokens.empty()) {
    say(out.notes, "{}: prefill of {} runs without CUDA graphs, as in SGLang", attention.backends.prefill,
        model.name);
    out.prefill.tokens.clear();
  }
  return out;
}

std::vector<std::uint32_t> captured_sizes(std::vector<std::uint32_t> sizes, std::uint32_t max_running,
                                          const rank::ParallelLayout& layout) {
  if (!sizes.empty() && sizes.back() > max_running) {
    std::erase_if(sizes, [max_running](std::uint32_t size) { return size > max_running; });
    if (sizes.empty() || sizes.back() < max_running) sizes.push_back(max_running);
  }
  const bool splits_tokens = layout.a2a() || layout.moe_dense_tp1 || layout.gathers_mlp();
  const std::uint32_t unit = splits_tokens ? layout.attn_tp_size() : 1;
  if (unit == 1 || sizes.empty()) return sizes;
  std::erase_if(sizes, [unit](std::uint32_t bs) { return bs % unit != 0; });
  if (sizes.empty())
    throw_user_error(
        "--cuda-graph-bs: must have a size that is a multiple of the {} GPUs of a data-parallel rank", unit);
  return sizes;
}

void write_graphs(const std::vector<std::uint32_t>& decode, const rank::PrefillGraphs& prefill, Rows& rows) {
  rows["disable_cuda_graph"] = on_off(decode.empty());
  rows["cuda_graph_max_bs"] = decode.empty() ? "0" : std::to_string(decode.back());
  rows["cuda_graph_bs"] = fmt::format("{}", fmt::join(decode, " "));
  rows["disable_prefill_cuda_graph"] = on_off(prefill.tokens.empty());
  rows["cuda_graph_max_bs_prefill"] = prefill.tokens.empty() ? "0" : std::to_string(prefill.tokens.back());
}

}  // namespace tpsim::launch
