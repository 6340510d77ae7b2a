#include "attention/vision_attention.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "attention/registry.h"
#include "attention/split_heuristics.h"
#include "proto/base/error.h"
#include "proto/coefficients.h"

namespace tpsim::attention {
namespace {

// Triton's kernel by its time on an H200, of 14 shapes with heads of 64 to 80: within 6 % in the median.
constexpr double kTritonAligned = 1.15, kTritonUnaligned = 1.95;
// FlashAttention 3's kernel of heads of up to 96, which text models' tables do not have, by encoders' times
// on an H200 (heads of 72 and 80, 8,000 to 32,000 patches).
constexpr double kFlash96 = 1.2;
// PyTorch's attention under a mask, of the device's peak (about 70 TFLOP/s on an H200, by 9 encoders' times).
constexpr double kMaskedShare = 0.07;
// A copy of pageable memory to the device: 9 GB/s on the H200's machine.
constexpr double kMaskCopyRate = 9e9;

bool triton_aligned(std::uint32_t head_dim) { return head_dim % 16 == 0; }

// The width of a head that the kernel computes with. FlashAttention 3 and 4 have kernels for some widths
// (hopper/static_switch.h), Triton's pads to the next power of 2, of which aligned rows pay their own part
// only, PyTorch's to multiples of 8.
std::uint32_t computed_head_dim(std::string_view name, std::uint32_t head_dim) {
  if (name == "triton_attn") return triton_aligned(head_dim) ? head_dim : std::bit_ceil(head_dim);
  if (name == "fa3" || name == "fa4") {
    for (const std::uint32_t width : {64U, 96U, 128U, 192U, 256U}) {
      if (head_dim <= width) return width;
    }
  }
  return (head_dim + 7) / 8 * 8;
}

ExtendPlan tiles_of(std::string_view name, GpuGeneration generation, std::uint32_t heads,
                    std::uint32_t head_dim) {
  ExtendPlan plan;
  plan.head_blocks = heads;
  if (name == "fa3") {
    plan.tile_m = plan.rows = flash3_tile_m(head_dim);
    plan.tile_n = flash3_tile_n(head_dim);
  } else if (name == "triton_attn") {
    // BLOCK of context_attention_fwd: 128 from compute capability 9 on and on AMD's devices, which report
    // one.
    const bool large = generation == GpuGeneration::kHopper || generation == GpuGeneration::kBlackwell ||
                       generation == GpuGeneration::kBlackwellSm120 || generation == GpuGeneration::kRocm;
    plan.tile_m = plan.rows = plan.tile_n = large ? 128 : 64;
  }
  return plan;
}

// Patches of all sequences.
double packed(std::span<const SequenceGroup> sequences) {
  double length = 0;
  for (const SequenceGroup& group : sequences) length += double(group.length) * group.count;
  return length;
}

GpuGeneration generation_of(const proto::HardwareProfile& profile) {
  return parse_gpu_generation(profile.architecture()).value();
}

}  // namespace

std::vector<std::string_view> vision_backend_names() {
  std::vector<std::string_view> names;
  for (const BackendDescription* backend : backend_list()) {
    if (!backend->row.mm_name.empty()) names.push_back(backend->row.mm_name);
  }
  return names;
}

std::string_view default_vision_backend(GpuGeneration generation) {
  switch (generation) {
    case GpuGeneration::kHopper:
      return "fa3";
    case GpuGeneration::kBlackwell:
      return "fa4";
    case GpuGeneration::kNpu:
      return "ascend_attn";
    case GpuGeneration::kRocm:  // with SGLANG_USE_AITER, as in SGLang's images for these devices
      return "aiter_attn";
    case GpuGeneration::kCpu:  // 0.5.23 has a kernel of its own (amx_attn), which the matrices do not list
      return "sdpa";
    case GpuGeneration::kXpu:  // likewise (xpu_attn); 0.5.12 takes Triton's
    case GpuGeneration::kTuring:
    case GpuGeneration::kAmpere:
    case GpuGeneration::kAda:
    case GpuGeneration::kBlackwellSm120:
      break;
  }
  return "triton_attn";
}

const BackendRow& find_vision_backend(std::string_view name, GpuGeneration generation, std::string_view gpu) {
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    if (row.mm_name.empty() || row.mm_name != name) continue;
    if (!row.generations.contains(generation)) {
      throw_user_error("--mm-attention-backend {}: runs on {}, and {} is {}; SGLang's default there is {}",
                       name, row.generations.names(), gpu, to_string(generation),
                       default_vision_backend(generation));
    }
    return row;
  }
  for (const std::string_view other : {"flashinfer_cudnn", "amx_attn", "xpu_attn"}) {
    if (name == other) {
      throw_user_error(
          "--mm-attention-backend {}: is not in the MultiModal column of SGLang's support matrix and not "
          "simulated; use one of {}",
          name, fmt::join(vision_backend_names(), ", "));
    }
  }
  throw_user_error("--mm-attention-backend {}: is not known; use one of {}", name,
                   fmt::join(vision_backend_names(), ", "));
}

std::string vision_operator_class(const BackendRow& row) {
  return fmt::format("attention.{}.extend", row.name);
}

VisionAttention::VisionAttention(const proto::HardwareProfile& profile, const BackendRow& row)
    : name_(row.mm_name),
      peak_flops_(profile.dense_flops_bf16()),
      generation_(generation_of(profile)),
      cost_(profile, coefficients_of<PlanCoefficients>(profile, vision_operator_class(row))) {}

KernelCost VisionAttention::layer(std::span<const SequenceGroup> sequences, std::uint32_t heads,
                                  std::uint32_t head_dim, bool flat) const {
  LayerShape shape;
  shape.num_q_heads = shape.num_kv_heads = heads;
  shape.head_dim = shape.v_head_dim = computed_head_dim(name_, head_dim);
  if (masks(flat)) {
    const double pairs = packed(sequences) * packed(sequences);
    KernelCost cost;
    cost.flops = 4 * pairs * heads * shape.head_dim;
    cost.bytes = pairs * heads;  // every head reads the mask, a byte for a pair
    cost.seconds = cost.flops / (kMaskedShare * peak_flops_);
    cost.launches = 2;  // the mask's copy
    return cost;
  }
  const ExtendPlan plan = tiles_of(name_, generation_, heads, shape.head_dim);
  KernelCost cost = cost_.encode(plan, sequences, shape);
  if (name_ == "fa3" && shape.head_dim == 96) cost.seconds *= kFlash96;
  if (name_ == "triton_attn") cost.seconds *= triton_aligned(head_dim) ? kTritonAligned : kTritonUnaligned;
  return cost;
}

double VisionAttention::host_seconds(std::span<const SequenceGroup> sequences, bool flat) const {
  return masks(flat) ? packed(sequences) * packed(sequences) / kMaskCopyRate : 0;
}

}  // namespace tpsim::attention
