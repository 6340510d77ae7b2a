#include "launch/deployment/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "launch/deployment/attention.h"
#include "launch/deployment/speculation.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using attention::GpuGeneration;
using rank::LinearAttnBackend;

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
                           const ServerArgs& args, const proto::HardwareProfile& hardware, Notes& notes) {
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
    say(notes, "{} cutedsl: prefill runs triton's kernels, CuTe DSL's are for SM 10.x only", flag);
    return LinearAttnBackend::kTriton;
  }
  // The generic state pool's kernel of SM 10 and newer reads and writes bfloat16 states.
  if (decodes && generation != GpuGeneration::kHopper && args.mamba_ssm_dtype != "bfloat16")
    throw_user_error("{} flashinfer: on {} decoding needs --mamba-ssm-dtype bfloat16", flag, hardware.name());
  return LinearAttnBackend::kFlashInfer;
}

// Whether passes that prefill run FlashInfer's kernels where the user left it open.
bool flashinfer_prefills(const ServerArgs& args, const proto::HardwareProfile& hardware,
                         const rank::ModelConfig& model, std::uint32_t chunk) {
  if (!args.sglang_release.rules.flashinfer_prefills_delta_nets) return false;
  const GpuGeneration generation = generation_of(hardware);
  const bool hopper = generation == GpuGeneration::kHopper;
  if (!hopper && generation != GpuGeneration::kBlackwell) return false;
  if (chunk == 0 || chunk > (hopper ? kHopperChunk : kBlackwellChunk)) return false;
  if (model.linear.kind != rank::LinearKind::kGatedDelta) return false;
  if (model.linear.key_head_dim != kHeadDim || model.linear.value_head_dim != kHeadDim) return false;
  return hopper ? args.mamba_ssm_dtype == "float32" ||
                      (args.mamba_ssm_dtype == "auto" && !bf16_states(args, model))
                : bf16_states(args, model);
}

// --mamba-radix-cache-strategy: the states' rules of a radix pool but for the size of their pool; overlap
// scheduling is off where the strategy asks for that. Throws UserError for what SGLang refuses.
void resolve_cache(const ServerArgs& args, const proto::HardwareProfile& hardware,
                   const rank::ModelConfig& model, std::uint32_t page,
                   const scheduler::SpeculationConfig& speculation, States& out) {
  if (!out.switches.radix_cache) return;
  if (model.facts.late_state_cache && !args.sglang_release.rules.snapshots_states) {
    say(out.notes, "{}: the radix cache is off, for SGLang {} keeps no states of {} in it", model.name,
        args.sglang_release.name, model.architecture);
    out.switches.radix_cache = false;
    return;
  }
  const GpuGeneration generation = generation_of(hardware);
  // supports_mamba_cache_extra_buffer() of arg_groups/overrides.py, whose classes LFM2's are not among.
  const bool short_conv = model.linear.kind == rank::LinearKind::kShortConv;
  const bool cpu = generation == GpuGeneration::kCpu;
  const bool takes_snapshots = !short_conv && generation != GpuGeneration::kXpu &&
                               (args.linear_attn_backend.empty() || args.linear_attn_backend == "triton");
  const bool snapshots = takes_snapshots && !cpu;
  const std::string& asked = args.mamba_radix_cache_strategy;
  const bool wanted = args.sglang_release.rules.snapshots_states && (out.switches.overlap || page > 1);
  // arg_groups/mamba_hook.py, validate_mamba_extra_buffer: no such default is made for a CPU.
  if (asked == "auto" && wanted && takes_snapshots && cpu)
    throw_user_error(
        "--mamba-radix-cache-strategy: where nothing is said SGLang {} takes extra_buffer and then says "
        "that a CPU has none; use --disable-overlap-schedule with --page-size 1, or --disable-radix-cache",
        args.sglang_release.name);
  const bool extra = asked == "extra_buffer" || (asked == "auto" && wanted && snapshots);
  if (extra && short_conv)
    throw_user_error("--mamba-radix-cache-strategy extra_buffer: SGLang has none for {}; use no_buffer",
                     model.architecture);
  if (extra && !snapshots)
    throw_user_error(
        "--mamba-radix-cache-strategy extra_buffer: needs --linear-attn-backend triton on a GPU whose "
        "kernels can write a state on the way; use no_buffer");
  if (!extra) {
    const bool chosen = asked != "auto" || !args.linear_attn_backend.empty();
    if (page != 1 && chosen)
      throw_user_error(
          "--mamba-radix-cache-strategy {}: without snapshots states are kept at the end of a sequence only, "
          "which needs --page-size 1 and not {}; use extra_buffer with triton's kernels, or "
          "--disable-radix-cache",
          asked, page);
    if (page != 1) {
      say(out.notes, "{}: the radix cache is off, for on {} it keeps states with --page-size 1 only",
          model.name, hardware.name());
      out.switches.radix_cache = false;
      return;
    }
    const bool beside_drafts = speculation.enabled() && !args.sglang_release.rules.snapshots_states;
    if (beside_drafts && !args.sglang_release.rules.cached_states_refuse_speculation) {
      // 0.5.9: server_args.py, _handle_mamba_radix_cache.
      say(out.notes, "{}: the radix cache is off, for SGLang {} keeps no states in it beside speculation",
          model.name, args.sglang_release.name);
      out.switches.radix_cache = false;
      return;
    }
    const bool looked_at = model.facts.overlaps_beside_states <= args.sglang_release.rules.serial_states;
    if (out.switches.overlap && asked == "no_buffer" && looked_at)
      throw_user_error("--mamba-radix-cache-strategy no_buffer: needs --disable-overlap-schedule");
    if (out.switches.overlap && looked_at)
      say(out.notes,
          "{}: overlap scheduling is off, for the radix cache keeps states without buffers for "
          "snapshots (no_buffer), as in SGLang",
          model.name);
    if (beside_drafts)
      throw_user_error(
          "--speculative-algorithm: with states of gated delta-net layers in the radix cache SGLang {} needs "
          "--mamba-radix-cache-strategy extra_buffer, or --disable-radix-cache",
          args.sglang_release.name);
    out.switches.overlap = out.switches.overlap && !looked_at;
  }
  const std::uint32_t interval = args.mamba_track_interval.value_or(kTrackInterval);
  if (extra && interval % page != 0)
    throw_user_error("--mamba-track-interval {}: must be a multiple of --page-size {}", interval, page);
  if (extra && speculation.enabled() && interval < speculation.num_draft_tokens)
    throw_user_error("--mamba-track-interval {}: must be {} at least, the tokens that a step verifies",
                     interval, speculation.num_draft_tokens);
  const std::uint32_t chunk = model.linear.chunk;
  if (extra && std::max(chunk, page) % std::min(chunk, page) != 0)
    throw_user_error(
        "--page-size {}: must divide the {} tokens of a chunk of gated delta-net layers, or be a multiple of "
        "them",
        page, chunk);
  out.config.tracking_slots = extra ? (out.switches.overlap ? 2 : 1) : 0;
  // CUDA's streams (managers/scheduler.py of 0.5.14: _war_barrier_enabled).
  out.config.read_behind_next_pass =
      extra && args.sglang_release.rules.snapshots_states && generation < GpuGeneration::kRocm;
  out.config.chunk = std::max(model.linear.chunk, page);
  out.config.track_interval = std::lcm(out.config.chunk, interval);
}

// --linear-attn-backend and what overrides it in passes that prefill or decode. Throws UserError for what the
// device cannot run.
rank::LinearAttnBackends choose_kernels(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                        const rank::ModelConfig& model, std::uint32_t chunk, Notes& notes) {
  rank::LinearAttnBackends backends;
  const std::string base = args.linear_attn_backend.empty() ? "triton" : args.linear_attn_backend;
  constexpr std::string_view kBase = "--linear-attn-backend";
  if (!args.linear_attn_decode_backend.empty()) {
    backends.decode = runnable("--linear-attn-decode-backend", args.linear_attn_decode_backend, true, args,
                               hardware, notes);
  } else if (generation_of(hardware) == GpuGeneration::kBlackwell && args.mamba_ssm_dtype == "bfloat16") {
    backends.decode = LinearAttnBackend::kFlashInfer;
    say(notes,
        "--linear-attn-decode-backend flashinfer: SGLang's choice on SM 10.x with --mamba-ssm-dtype "
        "bfloat16");
  } else {
    backends.decode = runnable(kBase, base, true, args, hardware, notes);
  }
  if (!args.linear_attn_prefill_backend.empty()) {
    backends.prefill = runnable("--linear-attn-prefill-backend", args.linear_attn_prefill_backend, false,
                                args, hardware, notes);
  } else if (base == "triton" && flashinfer_prefills(args, hardware, model, chunk)) {
    backends.prefill = LinearAttnBackend::kFlashInfer;
    say(notes, "--linear-attn-prefill-backend flashinfer: SGLang's choice for these states on {}",
        hardware.name());
  } else {
    backends.prefill = runnable(kBase, base, false, args, hardware, notes);
  }
  return backends;
}

}  // namespace

std::uint32_t state_bytes(const StateArgs& args, const rank::ModelConfig& model) {
  const char* given = args.mamba_full_memory_ratio                ? "--mamba-full-memory-ratio"
                      : args.max_mamba_cache_size                 ? "--max-mamba-cache-size"
                      : args.mamba_ssm_dtype != "auto"            ? "--mamba-ssm-dtype"
                      : args.mamba_radix_cache_strategy != "auto" ? "--mamba-radix-cache-strategy"
                      : args.mamba_track_interval                 ? "--mamba-track-interval"
                      : !args.linear_attn_backend.empty()         ? "--linear-attn-backend"
                      : !args.linear_attn_decode_backend.empty()  ? "--linear-attn-decode-backend"
                      : !args.linear_attn_prefill_backend.empty() ? "--linear-attn-prefill-backend"
                                                                  : nullptr;
  if (given == nullptr) return model.linear.state_bytes;
  if (!model.is_hybrid_linear())
    throw_user_error("{}: {} has no gated delta-net layers; leave it out", given, model.name);
  if (args.mamba_ssm_dtype == "auto") return model.linear.state_bytes;
  return args.mamba_ssm_dtype == "float32" ? 4 : 2;
}

States resolve_states(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, std::uint32_t page_size, std::uint32_t chunk,
                      const scheduler::SpeculationConfig& speculation, Switches switches) {
  States out;
  out.switches = switches;
  if (!model.is_hybrid_linear()) return out;
  resolve_cache(args, hardware, model, page_size, speculation, out);
  if (out.switches.radix_cache) out.slots_per_request = kBaseSlots + out.config.tracking_slots;
  if (!args.numeric()) out.kernels = choose_kernels(args, hardware, model, chunk, out.notes);
  return out;
}

rank::StatePool state_pool(const ServerArgs& args, const States& states,
                           const scheduler::SpeculationConfig& speculation, std::uint32_t dp_size) {
  rank::StatePool pool;
  pool.full_memory_ratio = args.mamba_full_memory_ratio.value_or(pool.full_memory_ratio);
  // Of one data-parallel rank. Without a radix cache each running request has one state, and no more are
  // needed.
  const std::optional<std::uint32_t> most =
      speculation.enabled() ? args.max_running_requests.value_or(kSpeculativeRunningRequests)
                            : args.max_running_requests;
  if (!states.switches.radix_cache && most) pool.slots = std::max(1U, *most / dp_size);
  if (speculation.enabled()) {
    pool.verified_tokens = speculation.num_draft_tokens;
    pool.running_requests = std::max(1U, *most / dp_size);
    pool.slots_per_request = states.slots_per_request;
  }
  if (args.max_mamba_cache_size) pool.slots = *args.max_mamba_cache_size / dp_size;
  return pool;
}

void write_states(const StateArgs& args, const rank::ModelConfig& model, const States& states,
                  double full_memory_ratio, std::uint64_t slots, Rows& rows) {
  if (!model.is_hybrid_linear()) return;
  rows["mamba_full_memory_ratio"] = format_real(full_memory_ratio);
  rows["max_mamba_cache_size"] = std::to_string(slots);
  rows["mamba_ssm_dtype"] = args.mamba_ssm_dtype != "auto"  ? args.mamba_ssm_dtype
                            : model.linear.state_bytes == 4 ? "float32"
                                                            : "bfloat16";
  rows["linear_attn_decode_backend"] = to_string(states.kernels.decode);
  rows["linear_attn_prefill_backend"] = to_string(states.kernels.prefill);
  if (!states.switches.radix_cache) return;
  rows["mamba_radix_cache_strategy"] = states.config.tracking_slots > 0 ? "extra_buffer" : "no_buffer";
  if (states.config.tracking_slots > 0)
    rows["mamba_track_interval"] = std::to_string(states.config.track_interval);
}

}  // namespace tpsim::launch
