#include "launch/deployment.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "launch/attention_choice.h"
#include "launch/calibration.h"
#include "launch/capture_report.h"
#include "launch/deployment_memory.h"
#include "launch/images.h"
#include "launch/linear_attention_choice.h"
#include "launch/parallel_args.h"
#include "launch/served_before.h"
#include "launch/service_level_args.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/versions.h"
#include "rank/model/hardware.h"
#include "rank/model/layers.h"
#include "rank/model/memory.h"
#include "rank/model/quantised_weights.h"
#include "scheduler/sglang_release.h"

namespace tpsim::launch {

namespace {

// What --disable-overlap-schedule stops hiding, of a pass and of each request that decodes in it, seconds:
// decode steps of llama-3.1-8b with and without it on H200s (SGLang 0.5.12, fa3, 1 to 64 requests), 1.38 ms
// longer at 1 request, 1.41 at 4, 1.54 at 16, 2.13 at 32, 2.57 at 64.
constexpr double kSerialPass = 1.36e-3;
constexpr double kSerialRequest = 19e-6;
// And of a pass that prefills, what its host does before the first kernel and behind the last one: tensors of
// the new requests, their places in the pool and the tree, sampling issued kernel by kernel. On an H200 with
// SGLang 0.5.12 (llama-3.1-8b, fa3) prefills of 900 tokens and more took 5 ms more than their kernels,
// scheduler_step_seconds included.
constexpr double kSerialExtend = 4e-3;

// What forming a pass that prefills takes beyond scheduler_step_seconds, of those: a device that is idle
// waits for it. Single requests of 1,024 tokens to 12 servers on H200s (SGLang 0.5.12; fa3, triton,
// flashinfer; two dense models, two of experts) saw their first token 0.5 to 2.5 ms later than without it.
constexpr double kFormingExtend = 1.5;

void set_scheduler_step(scheduler::SchedulerConfig& config, double seconds) {
  config.scheduler_step_seconds = seconds;
  config.forming_extend_seconds = kFormingExtend * seconds;
}

std::uint32_t context_length(const ServerArgs& args, const rank::ModelConfig& model) {
  if (!args.context_length) return model.context_length;
  if (*args.context_length > model.context_length)
    throw_user_error("--context-length {}: {} was made for at most {} tokens", *args.context_length,
                     model.name, model.context_length);
  return *args.context_length;
}

// Every option and its value, under SGLang's field names.
void write_server_args(const ServerArgs& args, double mem_fraction_static, Deployment& deployment) {
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  auto& out = *deployment.header.mutable_server_args();
  const auto on_off = [](bool on) { return on ? "true" : "false"; };
  out["model_path"] = args.model_path;
  out["hardware"] = deployment.hardware.name();
  out["tp_size"] = std::to_string(args.tp_size);
  out["executor"] = args.executor;
  // Where experts_in_use says so, a folder without weights is priced as a server with dummy ones.
  out["load_format"] = deployment.experts_in_use > 0 ? "dummy" : args.load_format.value_or("auto");
  out["dtype"] = args.dtype != "auto" ? args.dtype : args.numeric() ? deployment.model.dtype : "bfloat16";
  out["context_length"] = std::to_string(config.context_length);
  out["prefill_attention_backend"] = deployment.backends.prefill;
  out["decode_attention_backend"] = deployment.backends.decode;
  if (deployment.model.is_sparse()) {
    out["nsa_prefill_backend"] = to_string(deployment.sparse.kernels.prefill);
    out["nsa_decode_backend"] = to_string(deployment.sparse.kernels.decode);
  }
  out["page_size"] = std::to_string(config.page_size);
  out["kv_cache_dtype"] = std::string(to_string(deployment.kv_format));
  if (deployment.model.is_hybrid_linear()) {
    out["mamba_full_memory_ratio"] = format_real(state_pool(args, deployment).full_memory_ratio);
    out["max_mamba_cache_size"] = std::to_string(deployment.state_slots);
    out["mamba_ssm_dtype"] = args.mamba_ssm_dtype != "auto"             ? args.mamba_ssm_dtype
                             : deployment.model.linear.state_bytes == 4 ? "float32"
                                                                        : "bfloat16";
    out["linear_attn_decode_backend"] = to_string(deployment.linear_attention.decode);
    out["linear_attn_prefill_backend"] = to_string(deployment.linear_attention.prefill);
    if (!config.disable_radix_cache) {
      out["mamba_radix_cache_strategy"] = state_strategy(config);
      if (config.states.tracking_slots > 0)
        out["mamba_track_interval"] = std::to_string(config.states.track_interval);
    }
  }
  if (deployment.model.swa_pool_window > 0) {
    out["disable_hybrid_swa_memory"] = on_off(config.sliding_window_size == 0);
    if (config.sliding_window_size > 0) {
      out["swa_full_tokens_ratio"] = format_real(window_pool(args, deployment).full_tokens_ratio);
      out["swa_max_total_num_tokens"] = std::to_string(config.swa_max_total_num_tokens);
    }
  }
  if (deployment.model.quantization.quantized()) out["quantization"] = deployment.model.quantization.method;
  out["mem_fraction_static"] = format_real(mem_fraction_static);
  out["max_total_tokens"] = std::to_string(config.max_total_num_tokens);
  out["max_running_requests"] = std::to_string(config.max_running_requests);
  out["max_prefill_tokens"] = std::to_string(config.max_prefill_tokens);
  out["chunked_prefill_size"] =
      config.chunked_prefill_size == 0 ? "-1" : std::to_string(config.chunked_prefill_size);
  out["enable_mixed_chunk"] = on_off(config.enable_mixed_chunk);
  if (config.recv_interval > 1) out["scheduler_recv_interval"] = std::to_string(config.recv_interval);
  if (config.pass_gap_seconds > 0 || config.pass_gap_request_seconds > 0)
    out["pass_gap_ms"] = fmt::format("{},{}", format_real(config.pass_gap_seconds * 1e3),
                                     format_real(config.pass_gap_request_seconds * 1e3));
  if (args.kernel_launch_us) out["kernel_launch_us"] = format_real(*args.kernel_launch_us);
  if (args.fp8_gemm_backend != "auto") out["fp8_gemm_backend"] = args.fp8_gemm_backend;
  if (!args.compile_seconds.empty())
    out["compile_seconds"] = fmt::format("{}", fmt::join(args.compile_seconds, ","));
  if (args.compile_decode_seconds) out["compile_decode_seconds"] = format_real(*args.compile_decode_seconds);
  if (args.served_before) out["served_before"] = *args.served_before;
  if (args.launch_queue) out["launch_queue"] = std::to_string(*args.launch_queue);
  if (args.stream_interval > 1) out["stream_interval"] = std::to_string(args.stream_interval);
  out["schedule_policy"] = to_string(config.schedule_policy);
  out["sglang_version"] = scheduler::sglang_release_name(config.sglang_release);
  out["enable_priority_scheduling"] = on_off(config.priority.enable_scheduling);
  if (config.priority.enable_scheduling) {
    out["schedule_low_priority_values_first"] = on_off(config.priority.low_values_first);
    out["disable_priority_preemption"] = on_off(config.priority.disable_preemption);
    out["priority_scheduling_preemption_threshold"] = std::to_string(config.priority.preemption_threshold);
  }
  out["retraction_policy"] = to_string(config.retraction_policy);
  out["schedule_conservativeness"] = format_real(config.schedule_conservativeness);
  out["disable_radix_cache"] = on_off(config.disable_radix_cache);
  if (deployment.model.is_mla()) {
    out["disable_chunked_prefix_cache"] = on_off(args.disable_chunked_prefix_cache);
    out["flashinfer_mla_disable_ragged"] = on_off(args.flashinfer_mla_disable_ragged);
  }
  out["radix_eviction_policy"] = to_string(config.radix_eviction_policy);
  out["disable_overlap_schedule"] = on_off(config.disable_overlap_schedule);
  out["disable_cuda_graph"] = on_off(config.cuda_graph_bs.empty());
  out["cuda_graph_max_bs"] = config.cuda_graph_bs.empty() ? "0" : std::to_string(config.cuda_graph_bs.back());
  out["cuda_graph_bs"] = fmt::format("{}", fmt::join(config.cuda_graph_bs, " "));
  const std::vector<std::uint32_t>& pieces = deployment.prefill_graphs.tokens;
  out["disable_prefill_cuda_graph"] = on_off(pieces.empty());
  out["cuda_graph_max_bs_prefill"] = pieces.empty() ? "0" : std::to_string(pieces.back());
  out["random_seed"] = std::to_string(args.random_seed);
  out["rank_slowdown"] = fmt::format("{}", fmt::join(args.rank_slowdown, " "));
  // The load, under the names of SGLang's serving benchmark.
  out["trace"] = args.trace;
  out["trace_format"] = args.trace_format;
  out["dataset_name"] = args.dataset_name;
  out["dataset_path"] = args.dataset_path;
  out["num_prompts"] = args.num_prompts ? std::to_string(*args.num_prompts) : "all";
  out["request_rate"] = args.request_rate ? format_real(*args.request_rate) : "trace";
  out["max_concurrency"] = args.max_concurrency == 0 ? "none" : std::to_string(args.max_concurrency);
  out["front_end"] = args.front_end.value_or("auto");
  out["time_scale"] = format_real(args.time_scale.value_or(1.0));
  out["seed"] = std::to_string(args.load_seed());
  out["warmup_requests"] = std::to_string(args.warmup_requests);
  out["flush_cache"] = on_off(args.flush_cache);
  if (args.dataset_name == "generated-shared-prefix") {
    const scheduler::SharedPrefixOptions& gsp = args.gsp;
    out["num_prompts"] = std::to_string(gsp.num_groups * gsp.prompts_per_group);
    out["gsp_num_groups"] = std::to_string(gsp.num_groups);
    out["gsp_prompts_per_group"] = std::to_string(gsp.prompts_per_group);
    out["gsp_system_prompt_len"] = std::to_string(gsp.system_prompt_len);
    out["gsp_question_len"] = std::to_string(gsp.question_len);
    out["gsp_output_len"] = std::to_string(gsp.output_len);
    out["gsp_range_ratio"] = format_real(gsp.range_ratio);
    out["gsp_num_turns"] = std::to_string(gsp.num_turns);
    out["gsp_ordered"] = on_off(gsp.ordered);
    out["gsp_zipf_alpha"] = gsp.zipf_alpha ? format_real(*gsp.zipf_alpha) : "none";
  } else if (!args.dataset_name.empty()) {
    out["num_prompts"] = std::to_string(args.num_prompts.value_or(1000));
  }
  if (args.dataset_name == "image") {
    out["image_count"] = std::to_string(args.images.image_count.value_or(1));
    out["random_image_count"] = on_off(args.images.random_image_count);
    out["image_content"] = args.images.image_content.empty() ? "random" : args.images.image_content;
  }
  if (args.dataset_name == "image" || args.images.image_resolution)
    out["image_resolution"] = args.images.image_resolution.value_or("1080p");
  if (args.dataset_name.starts_with("random") || args.dataset_name == "image") {
    out["random_input_len"] = std::to_string(args.random_input_len.value_or(1024));
    out["random_output_len"] = std::to_string(args.random_output_len.value_or(1024));
    out["random_range_ratio"] = format_real(args.random_range_ratio.value_or(0));
  }
  if (args.goodput.any()) out["goodput"] = to_string(args.goodput);
  if (!args.dataset_name.empty() && args.dataset_name != "mooncake" && !args.request_rate)
    out["request_rate"] = "inf";
  if (args.request_rate) out["request_interval"] = args.fixed_interval ? "fixed" : "poisson";
}

// DeepEP's kernels for throughput cannot be captured, so SGLang captures nothing (_handle_a2a_moe).
bool never_captured(const Deployment& deployment) {
  return deployment.layout.a2a() && deployment.layout.deepep_mode == rank::DeepEpMode::kNormal;
}

// The captured sizes of prefill that the flags ask for: up to a chunk, or less with MLA.
std::vector<std::uint32_t> prefill_captures(const ServerArgs& args, const scheduler::ReleaseRules& rules,
                                            const Deployment& deployment) {
  const bool plain = deployment.layout.dp_size == 1 && !deployment.layout.a2a();
  // Pipeline stages prefill eagerly unless asked by a flag of SGLang that tpsim does not have (0.5.12's
  // server_args.py _handle_piecewise_cuda_graph, 0.5.23's arg_groups/cuda_graph_hook.py).
  if (deployment.scheduler.pipeline.staged()) return {};
  if (args.disable_prefill_cuda_graph || never_captured(deployment) ||
      (!plain && !rules.dp_attention_prefill_graphs) || !rank::default_graphs(deployment.hardware).prefill ||
      (args.disable_cuda_graph && rules.disable_cuda_graph_is_for_prefill_too) ||
      (deployment.model.is_sparse() && !rules.sparse_attention_prefills_in_pieces) ||
      deployment.model.vision
          .served)  // multimodal models: none of those simulated is among SGLang's exceptions
    return {};
  if (!args.prefill_cuda_graph_tokens.empty()) return args.prefill_cuda_graph_tokens;
  std::uint64_t most = deployment.scheduler.chunked_prefill_size;
  if (deployment.model.is_mla())
    most = rules.mla_prefill_graphs_to_8192 ? std::min<std::uint64_t>(most, 8192) : 2048;
  if (args.max_total_tokens) most = std::min(most, *args.max_total_tokens);
  if (args.context_length) most = std::min<std::uint64_t>(most, *args.context_length);
  most = args.prefill_cuda_graph_max_tokens.value_or(static_cast<std::uint32_t>(most));
  return rank::capture_prefill_tokens(static_cast<std::uint32_t>(most));
}

// What a GPU may hand to DeepEP's kernels for low latency at once
// (SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK).
void check_dispatched_tokens(const Deployment& deployment) {
  constexpr std::uint32_t kMost = 128;
  const rank::ParallelLayout& layout = deployment.layout;
  if (!layout.a2a() || layout.deepep_mode != rank::DeepEpMode::kLowLatency) return;
  const std::uint32_t most = kMost * layout.attn_tp_size();
  const std::uint32_t chunk = deployment.scheduler.chunked_prefill_size;
  if (chunk == 0 || chunk > most)
    throw_user_error(
        "--deepep-mode low_latency: hands on at most {} tokens of a GPU at once, and a prefill of {} tokens "
        "has "
        "more; use auto, or --chunked-prefill-size {}",
        kMost, chunk == 0 ? deployment.scheduler.max_prefill_tokens : chunk, most * layout.dp_size);
}

// Chunked prefill, captured graphs and the share of memory, which is returned, with SGLang's defaults for the
// GPU.
double resolve_batches(const ServerArgs& args, Deployment& deployment) {
  scheduler::SchedulerConfig& config = deployment.scheduler;
  const scheduler::ReleaseRules rules = scheduler::rules_of(config.sglang_release);
  const rank::BatchDefaults defaults =
      rank::default_batches(deployment.hardware, args.tp_size, rules.larger_batches_below_35_gib);
  const bool chunks = args.chunked_prefill_size.value_or(1) > 0;
  const auto chunk = static_cast<std::uint32_t>(
      args.chunked_prefill_size.value_or(std::int64_t{defaults.chunked_prefill_size}));
  config.chunked_prefill_size = chunks ? chunk : 0;
  if (config.chunked_prefill_size % config.page_size != 0)
    throw_user_error("--chunked-prefill-size {}: must be a multiple of --page-size {}",
                     config.chunked_prefill_size, config.page_size);

  std::uint32_t max_bs = defaults.cuda_graph_max_bs;
  if (args.max_running_requests && rules.captured_sizes_end_at_running_requests)
    max_bs = std::min(max_bs, *args.max_running_requests);
  max_bs = args.cuda_graph_max_bs.value_or(max_bs);
  config.cuda_graph_bs = args.cuda_graph_bs.empty()
                             ? rank::capture_batch_sizes(max_bs, config.speculation.enabled())
                             : args.cuda_graph_bs;
  max_bs = config.cuda_graph_bs.back();
  deployment.prefill_graphs.tokens = prefill_captures(args, rules, deployment);
  deployment.prefill_graphs.limit_padding = rules.prefill_graphs_limit_padding;

  const bool on_device = rank::default_graphs(deployment.hardware).decode;
  const bool decodes_eagerly =
      args.disable_cuda_graph || args.disable_decode_cuda_graph || !on_device || never_captured(deployment);
  // Before the backend has a say: what it cannot capture is kept free for all the same.
  const double fraction = args.mem_fraction_static.value_or(rank::default_mem_fraction(
      deployment.hardware,
      {.tp_size = args.tp_size * args.parallel.pp_size,
       .dp_size = deployment.layout.dp_size,
       .activation_tokens = chunks ? chunk : args.max_prefill_tokens,
       .cuda_graph_max_bs = decodes_eagerly && rules.uncaptured_decode_reserves_nothing ? 0 : max_bs,
       .prefill_captures = static_cast<std::uint32_t>(deployment.prefill_graphs.tokens.size()),
       .mla = deployment.model.is_mla(),
       .draft_mib = draft_reserve_mib(args, deployment.speculation)}));

  const auto captures = [](const std::string& backend, const char* flag) {
    return attention::find_backend(backend, flag).row.supports_cuda_graph;
  };
  // The half that verifies is what is captured.
  const bool by_prefill = config.speculation.enabled() && deployment.verifies_with_prefill;
  const std::string& captured = by_prefill ? deployment.backends.prefill : deployment.backends.decode;
  if (decodes_eagerly || !captures(captured, "--decode-attention-backend")) {
    if (!on_device)
      deployment.notes.push_back(
          fmt::format("{}: decode is not captured on this device", deployment.hardware.name()));
    else if (never_captured(deployment))
      deployment.notes.emplace_back(
          "--deepep-mode normal: cannot be captured, so nothing runs in CUDA graphs");
    else if (!decodes_eagerly)
      deployment.notes.push_back(
          fmt::format("{}: cannot be captured, so decode runs without CUDA graphs", captured));
    config.cuda_graph_bs.clear();
  }
  if (rules.torch_native_prefill_is_eager &&
      !captures(deployment.backends.prefill, "--prefill-attention-backend"))
    deployment.prefill_graphs.tokens.clear();
  apply_data_parallelism(args, deployment.layout, config);
  check_dispatched_tokens(deployment);
  if (deployment.layout.dp_size > 1 && config.chunked_prefill_size > 0)
    std::erase_if(deployment.prefill_graphs.tokens,
                  [&](std::uint32_t tokens) { return tokens > config.chunked_prefill_size; });
  const attention::BackendRow& prefill =
      attention::find_backend(deployment.backends.prefill, "--prefill-attention-backend").row;
  if (rules.deepseek_v3_prefill_may_be_eager && prefill.eager_deepseek_v3_prefill &&
      deployment.model.architecture == "DeepseekV3ForCausalLM" && !deployment.prefill_graphs.tokens.empty()) {
    deployment.notes.push_back(fmt::format("{}: prefill of {} runs without CUDA graphs, as in SGLang",
                                           deployment.backends.prefill, deployment.model.name));
    deployment.prefill_graphs.tokens.clear();
  }
  // Workspace of attention over long contexts.
  constexpr std::uint32_t kLongContext = 8192;
  const double images = args.mem_fraction_static ? 1 : image_memory_factor(deployment.model.vision);
  return images * (config.context_length > kLongContext ? fraction * prefill.long_context_memory : fraction);
}

void resolve_scheduler(const ServerArgs& args, Deployment& deployment) {
  scheduler::SchedulerConfig& config = deployment.scheduler;
  config.max_prefill_tokens = args.max_prefill_tokens;
  config.enable_mixed_chunk = args.enable_mixed_chunk;
  if (args.scheduler_recv_interval > 1 && deployment.layout.dp_size > 1)
    throw_user_error("--scheduler-recv-interval {}: is not for data-parallel attention; leave it out",
                     args.scheduler_recv_interval);
  config.recv_interval = args.scheduler_recv_interval;
  if (!args.pass_gap_ms.empty()) {
    config.pass_gap_seconds = args.pass_gap_ms[0] * 1e-3;
    config.pass_gap_request_seconds = args.pass_gap_ms[1] * 1e-3;
  } else if (args.disable_overlap_schedule && !args.numeric()) {
    config.pass_gap_seconds = kSerialPass;
    config.pass_gap_request_seconds = kSerialRequest;
  }
  // Servers that are said to leave no gap are said to hide this, too.
  if (args.disable_overlap_schedule && config.pass_gap_seconds > 0)
    config.serial_extend_seconds = kSerialExtend;
  if (!args.compile_seconds.empty()) {
    config.compile_batch_seconds = args.compile_seconds[0];
    config.compile_chunk_seconds = args.compile_seconds[1];
  }
  config.compile_decode_seconds = args.compile_decode_seconds.value_or(0);
  config.schedule_policy = args.schedule_policy;
  config.sglang_release = args.sglang_release;
  config.priority = args.priority;
  config.retraction_policy = args.retraction_policy;
  config.schedule_conservativeness = args.schedule_conservativeness;
  config.disable_radix_cache = args.disable_radix_cache;
  config.radix_eviction_policy = args.radix_eviction_policy;
  config.disable_overlap_schedule = args.disable_overlap_schedule;
  config.context_length = context_length(args, deployment.model);
  config.random_seed = args.random_seed;
  // Numeric execution measures; the scheduler's own time is small against computing on the CPU.
  set_scheduler_step(config, args.numeric() ? 0 : deployment.hardware.scheduler_step_seconds());
  if (!args.numeric() && attention::kCudaGenerations.contains(generation_of(deployment.hardware)))
    config.launch_queue = scheduler::kLaunchQueue;
  if (args.launch_queue) config.launch_queue = *args.launch_queue;
  config.send_tokens = args.numeric() || !args.record_batches.empty();
  config.eos_token_ids = deployment.model.eos_token_ids;
  config.check_invariants = args.check_invariants;
}

// The kernels of sparse attention, and what they want stored. REQUIRES: kv_format, layout.
void resolve_sparse_attention(const ServerArgs& args, Deployment& deployment) {
  const rank::ModelConfig& model = deployment.model;
  if (!model.is_sparse()) {
    if (args.nsa_prefill_backend || args.nsa_decode_backend)
      throw_user_error("{}: {} has no sparse attention; leave it out",
                       args.nsa_prefill_backend ? "--nsa-prefill-backend" : "--nsa-decode-backend",
                       model.name);
    return;
  }
  deployment.sparse.kernels = attention::choose_sparse_kernels(
      {.prefill = args.nsa_prefill_backend,
       .decode = args.nsa_decode_backend,
       .generation = generation_of(deployment.hardware),
       .kv_format = deployment.kv_format,
       .num_q_heads = model.num_attention_heads / deployment.layout.attn_tp_size(),
       .glm = model.architecture == "GlmMoeDsaForCausalLM",
       .mixed_chunk = args.enable_mixed_chunk});
  if (args.numeric() && deployment.sparse.kernels.prefill == attention::SparseKernel::kFlashMlaSparseQ8)
    throw_user_error(
        "--nsa-prefill-backend flashmla_sparse_q8: --executor numeric does not round queries and latents to "
        "fp8 "
        "in the kernel; use flashmla_sparse");
  deployment.sparse.top_k = model.indexer.top_k;
  deployment.sparse_token_bytes = attention::sparse_token_bytes(
      deployment.sparse.kernels, deployment.kv_format, model.mla.kv_lora_rank, model.mla.qk_rope_head_dim);
}

// Backends that attend to more than a model's chunks.
void note_whole_chunks(Deployment& deployment) {
  std::uint32_t chunk = 0;
  for (const rank::AttentionKind& kind : deployment.model.attention)
    chunk = std::max(chunk, kind.attention_chunk);
  if (chunk == 0) return;
  std::vector<std::string> whole;
  for (const std::string& name : {deployment.backends.prefill, deployment.backends.decode}) {
    const bool local = attention::find_backend(name, "--attention-backend").row.local_attention;
    if (!local && std::find(whole.begin(), whole.end(), name) == whole.end()) whole.push_back(name);
  }
  if (!whole.empty())
    deployment.notes.push_back(
        fmt::format("{}: reads the whole context in {}'s chunked layers, as in SGLang, where only fa3 and "
                    "intel_xpu read their "
                    "chunk of {} tokens",
                    fmt::join(whole, ", "), deployment.model.name, chunk));
}

// Models whose pages or prefixes have rules of their own.
void resolve_model_rules(const ServerArgs& args, Deployment& deployment) {
  scheduler::SchedulerConfig& config = deployment.scheduler;
  const rank::DualChunkConfig& dual_chunk = deployment.model.dual_chunk;
  if (dual_chunk.enabled() && dual_chunk.chunk_len() % config.page_size != 0) {
    throw_user_error(
        "--page-size {}: must divide the {} tokens of a chunk (chunk_size less local_size of {}'s "
        "dual_chunk_attention_config)",
        config.page_size, dual_chunk.chunk_len(), deployment.model.name);
  }
  if (dual_chunk.enabled() && (config.enable_mixed_chunk || !config.disable_radix_cache)) {
    // server_args.py of 0.5.12, _handle_attention_backend_compatibility
    deployment.notes.emplace_back(
        "dual_chunk_flash_attn: mixed chunks and the radix cache are off, as in SGLang");
    config.enable_mixed_chunk = false;
    config.disable_radix_cache = true;
  }
  resolve_state_cache(args, deployment.hardware, deployment.model, config, deployment.notes);
}

// The format of the weights, where the GPU can multiply it.
void resolve_weights(const ServerArgs& args, Deployment& deployment) {
  rank::QuantizationConfig& quantization = deployment.model.quantization;
  quantization = rank::resolve_quantization(quantization, args.quantization);
  if (args.numeric()) {
    if (quantization.online)
      throw_user_error(
          "--quantization {}: --executor numeric computes with a checkpoint's own weights; leave it out",
          args.quantization);
    return;
  }
  if (!quantization.quantized()) return;
  rank::check_capability(quantization, deployment.hardware);
}

// A folder with a config.json and no weights that SGLang's loaders would read.
bool holds_no_weights(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator files(path, error);
  if (error) return false;
  return std::none_of(begin(files), end(files), [](const std::filesystem::directory_entry& file) {
    const std::filesystem::path kind = file.path().extension();
    return kind == ".safetensors" || kind == ".bin" || kind == ".pt" || kind == ".gguf";
  });
}

// Where dummy weights decide which experts the tokens visit. SGLang serves a folder without weights with
// --load-format dummy only, so that is what such a folder stands for unless the user says otherwise.
void resolve_routing(const ServerArgs& args, Deployment& deployment) {
  if (args.numeric() || args.parallel.expert_distribution) return;
  if (!rank::dummy_weights_share_experts(deployment.model)) return;
  const std::uint32_t top_k = deployment.model.moe.top_k;
  if (!args.load_format && holds_no_weights(args.model_path)) {
    deployment.warnings.push_back(
        fmt::format("--model-path {}: has no weights: priced as a server with --load-format dummy, whose "
                    "router sends every token to the same {} experts; --load-format auto prices even routing",
                    args.model_path, top_k));
  } else if (!args.dummy_weights()) {
    return;
  }
  deployment.experts_in_use = top_k;
}

// Its notes, and the attention backend of the model that drafts.
void add_speculation(const ServerArgs& args, Deployment& deployment) {
  const Speculation& speculation = deployment.speculation;
  deployment.verifies_with_prefill = args.speculation.attention_mode == "prefill";
  deployment.notes.insert(deployment.notes.end(), speculation.notes.begin(), speculation.notes.end());
  deployment.warnings.insert(deployment.warnings.end(), speculation.warnings.begin(),
                             speculation.warnings.end());
  if (!speculation.draft) return;
  const bool by_prefill = deployment.verifies_with_prefill;
  deployment.draft_backend = by_prefill ? deployment.backends.prefill : deployment.backends.decode;
  if (args.speculation.draft_attention_backend ||
      speculation.draft->config.is_mla() != deployment.model.is_mla())
    check_draft_backend(args, deployment.hardware, speculation.draft->config, deployment.scheduler.page_size,
                        speculation.config.topk, deployment.draft_backend);
  deployment.draft_extend_captured =
      draft_extend_captured(args.sglang_release, speculation, deployment.draft_backend);
}

// REQUIRES: kv_format, layout.
void resolve_draft_options(const ServerArgs& args, Deployment& deployment) {
  const SpeculationArgs& given = args.speculation;
  deployment.draft_kv_format = deployment.kv_format;
  if (given.draft_kv_cache_dtype == "fp8_e4m3") deployment.draft_kv_format = NumberFormat::kFp8E4M3;
  if (given.draft_kv_cache_dtype == "fp8_e5m2") deployment.draft_kv_format = NumberFormat::kFp8E5M2;
  if (given.draft_kv_cache_dtype.starts_with("bf")) deployment.draft_kv_format = NumberFormat::kBf16;
  deployment.draft_moe_a2a = deployment.layout.moe_a2a;
  if (given.moe_a2a_backend == "none") deployment.draft_moe_a2a = rank::MoeA2aBackend::kNone;
  if (given.moe_a2a_backend == "deepep" && !deployment.layout.a2a())
    throw_user_error(
        "--speculative-moe-a2a-backend deepep: is simulated with --moe-a2a-backend deepep only; use none");
}

// What a server that has compiled nothing yet has met. REQUIRES: batches and memory are resolved.
rank::FreshKernelRules fresh_kernels(const ServerArgs& args, const Deployment& deployment) {
  using Decode = rank::FreshKernelRules::Decode;
  const std::string& decode = deployment.backends.decode;
  const rank::MoeConfig& moe = deployment.model.moe;
  const bool triton_experts = moe.num_layers > 0 && !deployment.layout.a2a();
  return {.decode = decode == "fa3"            ? Decode::kFa3
                    : decode == "triton"       ? Decode::kTriton
                    : decode == "torch_native" ? Decode::kTorchNative
                                               : Decode::kNone,
          .page_size = deployment.scheduler.page_size,
          .chunk = deployment.scheduler.chunked_prefill_size,
          .top_k = triton_experts ? moe.top_k + moe.num_fused_shared_experts : 0,
          .captured = deployment.scheduler.cuda_graph_bs,
          .served = parse_served_before("--served-before", *args.served_before)};
}

Deployment resolve_one(const ServerArgs& args, const BackendPair* pair) {
  Deployment deployment;
  deployment.model = rank::load_model_config(args.model_path);
  if (args.disable_shared_experts_fusion) deployment.model.moe.num_fused_shared_experts = 0;
  read_state_flags(args, deployment.model);
  check_window_flags(args, deployment.model);
  deployment.hardware = rank::load_hardware(hardware_name(args));
  if (args.kernel_launch_us) deployment.hardware.set_kernel_launch_seconds(*args.kernel_launch_us * 1e-6);
  if (args.fp8_gemm_backend == "flashinfer_trtllm" && !rank::use_trtllm_blocks(deployment.hardware))
    throw_user_error(
        "--fp8-gemm-backend flashinfer_trtllm: these kernels are of NVIDIA's b200, b300 and gb200, and "
        "--hardware is {}; leave it out",
        deployment.hardware.name());
  resolve_weights(args, deployment);
  deployment.speculation = resolve_speculation(args, deployment.model);
  AttentionChoice attention = choose_attention(args, pair, deployment.hardware, deployment.model);
  deployment.backends = std::move(attention.backends);
  deployment.kv_format = attention.kv_format;
  deployment.scheduler.page_size = attention.page_size;
  deployment.notes = std::move(attention.notes);
  deployment.warnings = std::move(attention.warnings);
  add_speculation(args, deployment);
  note_whole_chunks(deployment);
  deployment.mla.chunked_prefix_cache = !args.disable_chunked_prefix_cache;
  deployment.mla.ragged = !args.flashinfer_mla_disable_ragged;
  resolve_routing(args, deployment);
  deployment.layout = resolve_layout(args, deployment.model, deployment.notes);
  if (!args.numeric() && deployment.model.quantization.quantized())
    rank::check_blocks(deployment.model, rank::make_shard(deployment.model, deployment.layout, 0));
  resolve_draft_options(args, deployment);
  resolve_sparse_attention(args, deployment);
  resolve_images(args, deployment.hardware, deployment.layout, deployment.model, deployment.notes);
  deployment.expert_load = resolve_expert_load(args, deployment.model);
  resolve_scheduler(args, deployment);
  apply_speculation(args, deployment.speculation, deployment.scheduler, deployment.notes);
  resolve_model_rules(args, deployment);
  deployment.stages = resolve_pipeline(args, deployment.model, deployment.scheduler, deployment.notes);
  const double mem_fraction_static = resolve_batches(args, deployment);
  if (!args.numeric())
    deployment.linear_attention = choose_linear_attention(args, deployment.hardware, deployment.model,
                                                          deployment.scheduler, deployment.notes);
  resolve_memory(args, mem_fraction_static, deployment);
  if (args.served_before && !args.numeric()) deployment.fresh_kernels = fresh_kernels(args, deployment);

  proto::RunReport& header = deployment.header;
  header.set_version(kRunReportVersion);
  header.set_backend(deployment.backends.name());
  header.set_prefill_attention_backend(deployment.backends.prefill);
  header.set_decode_attention_backend(deployment.backends.decode);
  header.set_model(deployment.model.name);
  header.set_hardware(args.numeric() ? "CPU" : deployment.hardware.name());
  header.set_tp_size(args.tp_size);
  if (deployment.scheduler.pipeline.staged()) header.set_pp_size(deployment.scheduler.pipeline.size);
  header.set_executor(args.executor);
  header.set_clock(args.numeric() ? "wall" : "virtual");
  if (!args.numeric()) {
    write_calibration({.model = deployment.model,
                       .hardware = deployment.hardware,
                       .backends = deployment.backends,
                       .layout = deployment.layout,
                       .pipeline = deployment.scheduler.pipeline.staged(),
                       .sparse = deployment.sparse.kernels,
                       .kv_format = deployment.kv_format,
                       .decode_graphs = !deployment.scheduler.cuda_graph_bs.empty(),
                       .prefill_pieces = !deployment.prefill_graphs.tokens.empty(),
                       .speculation = deployment.speculation.algorithm,
                       .linear_attention = deployment.linear_attention,
                       .launch_queue = deployment.scheduler.launch_queue,
                       .queue_stated = args.launch_queue.has_value()},
                      header);
  }
  write_images(deployment.hardware, deployment.model.vision, /*priced=*/!args.numeric(), header);
  if (!args.numeric()) write_capture_cost(deployment, header);
  write_server_args(args, mem_fraction_static, deployment);
  write_speculation(args, deployment.speculation, header);
  write_parallel_args(args, deployment.layout, deployment.expert_load, deployment.model, header);
  const scheduler::PipelineConfig& pipeline = deployment.scheduler.pipeline;
  if (pipeline.staged() || pipeline.max_micro_batch_size)
    (*header.mutable_server_args())["pp_max_micro_batch_size"] =
        std::to_string(pipeline.requests_of_micro_batch(deployment.scheduler.max_running_requests));
  return deployment;
}

}  // namespace

void Deployment::price_by(const proto::HardwareProfile& profile) {
  hardware = profile;
  set_scheduler_step(scheduler, profile.scheduler_step_seconds());
}

std::vector<Deployment> resolve_deployments(const ServerArgs& args, bool compare) {
  std::vector<Deployment> deployments;
  if (!compare) {
    deployments.push_back(resolve_one(args, nullptr));
  } else {
    for (const BackendPair& pair : args.attention_backends) deployments.push_back(resolve_one(args, &pair));
  }
  return deployments;
}

}  // namespace tpsim::launch
