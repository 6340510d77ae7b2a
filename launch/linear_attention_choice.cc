#include "launch/linear_attention_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "launch/attention_choice.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using attention::GpuGeneration;
using rank::LinearAttnBackend;

constexpr std::uint32_t kFlaChunk = 64;        // tokens (sglang/kernels/ops/attention/fla/chunk_delta_h.py)
constexpr std::uint32_t kTrackInterval = 256;  // tokens (--mamba-track-interval)
constexpr std::uint32_t kBaseSlots = 3;        // MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO
constexpr std::uint32_t kHeadDim = 128;  // that FlashInfer's and CuTe DSL's prefill kernels are made for
constexpr std::uint32_t kHopperChunk = 32768;  // tokens: longest chunks of FlashInfer's prefill by default
constexpr std::uint32_t kBlackwellChunk = 8192;

bool bf16_states(const ServerArgs& args, const rank::ModelConfig& model) {
  return args.mamba_ssm_dtype == "bfloat16" ||
         (args.mamba_ssm_dtype == "auto" && model.linear.state_bytes == 2);
}

// A backend of GDN layers that this device can run.
LinearAttnBackend runnable(std::string_view flag, const std::string& name, bool decodes,
                           const ServerArgs& args, const proto::HardwareProfile& hardware,
                           std::vector<std::string>& notes) {
  const GpuGeneration generation = generation_of(hardware);
  if (name == "triton") return LinearAttnBackend::kTriton;
  if (!attention::kCudaGenerations.contains(generation))
    throw_user_error("{} {}: its kernels are for NVIDIA GPUs, and {} is none; use triton", flag, name,
                     hardware.name());
  const bool hopper_or_newer = generation == GpuGeneration::kHopper ||
                               generation == GpuGeneration::kBlackwell ||
                               generation == GpuGeneration::kBlackwellSm120;
  if (!hopper_or_newer)
    throw_user_error("{} {}: its kernels need a Hopper or Blackwell GPU, and {} is {}; use triton", flag,
                     name, hardware.name(), to_string(generation));
  if (name == "cutedsl") {
    if (decodes || generation == GpuGeneration::kBlackwell) return LinearAttnBackend::kCuteDsl;
    notes.push_back(
        fmt::format("{} cutedsl: prefill runs triton's kernels, CuTe DSL's are for SM 10.x only", flag));
    return LinearAttnBackend::kTriton;
  }
  // The generic state pool's kernel of SM 10 and newer reads and writes bfloat16 states.
  if (decodes && generation != GpuGeneration::kHopper && args.mamba_ssm_dtype != "bfloat16")
    throw_user_error("{} flashinfer: on {} decoding needs --mamba-ssm-dtype bfloat16", flag, hardware.name());
  return LinearAttnBackend::kFlashInfer;
}

// Whether passes that prefill run FlashInfer's kernels where the user left it open.
bool flashinfer_prefills(const ServerArgs& args, const proto::HardwareProfile& hardware,
                         const rank::ModelConfig& model, const scheduler::SchedulerConfig& config) {
  if (config.sglang_release != scheduler::kNewestRelease)
    return false;  // 0.5.12 and 0.5.14 know no such default
  const GpuGeneration generation = generation_of(hardware);
  const bool hopper = generation == GpuGeneration::kHopper;
  if (!hopper && generation != GpuGeneration::kBlackwell) return false;
  const std::uint32_t chunk = config.chunked_prefill_size;
  if (chunk == 0 || chunk > (hopper ? kHopperChunk : kBlackwellChunk)) return false;
  if (model.linear.key_head_dim != kHeadDim || model.linear.value_head_dim != kHeadDim) return false;
  return hopper ? args.mamba_ssm_dtype == "float32" ||
                      (args.mamba_ssm_dtype == "auto" && !bf16_states(args, model))
                : bf16_states(args, model);
}

}  // namespace

void resolve_state_cache(const ServerArgs& args, const proto::HardwareProfile& hardware,
                         const rank::ModelConfig& model, scheduler::SchedulerConfig& config,
                         std::vector<std::string>& notes) {
  if (!model.is_hybrid_linear() || config.disable_radix_cache) return;
  if (config.sglang_release != scheduler::kNewestRelease) {
    notes.push_back(fmt::format(
        "{}: the radix cache is off, for tpsim keeps the states of gated delta-net layers as SGLang {} does, "
        "and not as {}; compare with a server started with --disable-radix-cache",
        model.name, scheduler::sglang_release_name(scheduler::kNewestRelease),
        scheduler::sglang_release_name(config.sglang_release)));
    config.disable_radix_cache = true;
    return;
  }
  const GpuGeneration generation = generation_of(hardware);
  const bool snapshots = generation != GpuGeneration::kXpu && generation != GpuGeneration::kCpu &&
                         (args.linear_attn_backend.empty() || args.linear_attn_backend == "triton");
  const std::string& asked = args.mamba_radix_cache_strategy;
  const bool wanted = !config.disable_overlap_schedule || config.page_size > 1;
  const bool extra = asked == "extra_buffer" || (asked == "auto" && wanted && snapshots);
  if (extra && !snapshots)
    throw_user_error(
        "--mamba-radix-cache-strategy extra_buffer: needs --linear-attn-backend triton on a GPU whose "
        "kernels can write a state on the way; use no_buffer");
  if (!extra) {
    const bool chosen = asked != "auto" || !args.linear_attn_backend.empty();
    if (config.page_size != 1 && chosen)
      throw_user_error(
          "--mamba-radix-cache-strategy {}: without snapshots states are kept at the end of a sequence only, "
          "which "
          "needs --page-size 1 and not {}; use extra_buffer with triton's kernels, or --disable-radix-cache",
          asked, config.page_size);
    if (config.page_size != 1) {
      notes.push_back(
          fmt::format("{}: the radix cache is off, for on {} it keeps states with --page-size 1 only",
                      model.name, hardware.name()));
      config.disable_radix_cache = true;
      return;
    }
    if (!config.disable_overlap_schedule && asked == "no_buffer")
      throw_user_error("--mamba-radix-cache-strategy no_buffer: needs --disable-overlap-schedule");
    if (!config.disable_overlap_schedule)
      notes.push_back(
          fmt::format("{}: overlap scheduling is off, for the radix cache keeps states without "
                      "buffers for snapshots (no_buffer), as in SGLang",
                      model.name));
    config.disable_overlap_schedule = true;
  }
  const std::uint32_t interval = args.mamba_track_interval.value_or(kTrackInterval);
  const std::uint32_t page = config.page_size;
  if (extra && interval % page != 0)
    throw_user_error("--mamba-track-interval {}: must be a multiple of --page-size {}", interval, page);
  if (extra && config.speculation.enabled() && interval < config.speculation.num_draft_tokens)
    throw_user_error("--mamba-track-interval {}: must be {} at least, the tokens that a step verifies",
                     interval, config.speculation.num_draft_tokens);
  if (extra && std::max(kFlaChunk, page) % std::min(kFlaChunk, page) != 0)
    throw_user_error(
        "--page-size {}: must divide the {} tokens of a chunk of gated delta-net layers, or be a "
        "multiple of them",
        page, kFlaChunk);
  config.states.tracking_slots = extra ? (config.disable_overlap_schedule ? 1 : 2) : 0;
  config.states.chunk = std::max(kFlaChunk, page);
  config.states.track_interval = std::lcm(config.states.chunk, interval);
}

std::string_view state_strategy(const scheduler::SchedulerConfig& config) {
  return config.states.tracking_slots > 0 ? "extra_buffer" : "no_buffer";
}

std::uint32_t state_slots_per_request(const scheduler::SchedulerConfig& config) {
  return config.disable_radix_cache ? 1 : kBaseSlots + config.states.tracking_slots;
}

rank::LinearAttnBackends choose_linear_attention(const ServerArgs& args,
                                                 const proto::HardwareProfile& hardware,
                                                 const rank::ModelConfig& model,
                                                 const scheduler::SchedulerConfig& config,
                                                 std::vector<std::string>& notes) {
  rank::LinearAttnBackends backends;
  if (!model.is_hybrid_linear()) return backends;
  const std::string base = args.linear_attn_backend.empty() ? "triton" : args.linear_attn_backend;
  constexpr std::string_view kBase = "--linear-attn-backend";
  if (!args.linear_attn_decode_backend.empty()) {
    backends.decode = runnable("--linear-attn-decode-backend", args.linear_attn_decode_backend, true, args,
                               hardware, notes);
  } else if (generation_of(hardware) == GpuGeneration::kBlackwell && args.mamba_ssm_dtype == "bfloat16") {
    backends.decode = LinearAttnBackend::kFlashInfer;
    notes.emplace_back(
        "--linear-attn-decode-backend flashinfer: SGLang's choice on SM 10.x with --mamba-ssm-dtype "
        "bfloat16");
  } else {
    backends.decode = runnable(kBase, base, true, args, hardware, notes);
  }
  if (!args.linear_attn_prefill_backend.empty()) {
    backends.prefill = runnable("--linear-attn-prefill-backend", args.linear_attn_prefill_backend, false,
                                args, hardware, notes);
  } else if (base == "triton" && flashinfer_prefills(args, hardware, model, config)) {
    backends.prefill = LinearAttnBackend::kFlashInfer;
    notes.push_back(fmt::format(
        "--linear-attn-prefill-backend flashinfer: SGLang's choice for these states on {}", hardware.name()));
  } else {
    backends.prefill = runnable(kBase, base, false, args, hardware, notes);
  }
  return backends;
}

}  // namespace tpsim::launch
