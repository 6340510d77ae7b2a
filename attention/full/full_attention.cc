#include "attention/full/full_attention.h"

// The kernels, in the order of --mm-attention-backend's choices; the first that is SGLang's default on a
// device is chosen there where none is named.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/layer_shape.h"
#include "attention/split_heuristics.h"
#include "proto/base/error.h"
#include "proto/coefficients.h"

namespace tpsim::attention {
namespace {

// Of the widths of heads that FlashAttention 3 and 4 have kernels for (hopper/static_switch.h), the least
// that holds a head.
constexpr std::uint32_t flash_head_dim(std::uint32_t head_dim) {
  for (const std::uint32_t width : {64U, 96U, 128U, 192U, 256U}) {
    if (head_dim <= width) return width;
  }
  return whole_eights(head_dim);
}

// SGLang's Triton kernel (context_attention_fwd) pads heads to the next power of 2. It reads the rows of
// heads that are no multiple of 16 wide (SigLIP's 72) unaligned; aligned rows pay their own width only.
constexpr bool triton_aligned(std::uint32_t head_dim) { return head_dim % 16 == 0; }

// Its BLOCK: 128 from compute capability 9 on and on AMD's devices, which report one.
constexpr GpuGenerations kLargeTritonBlocks = {GpuGeneration::kHopper, GpuGeneration::kBlackwell,
                                               GpuGeneration::kBlackwellSm120, GpuGeneration::kRocm};

// PyTorch's scaled_dot_product_attention: where a model packs its sequences into one, it attends to the whole
// under a mask of every pair of patches, made on the host and copied for each layer, with which PyTorch takes
// another kernel.
constexpr MaskedAttention kMasked = {
    .layer =
        [](double patches, std::uint32_t heads, std::uint32_t head_dim, double peak_flops) {
          // Of the device's peak (about 70 TFLOP/s on an H200, by 9 encoders' times).
          constexpr double kShare = 0.07;
          const double pairs = patches * patches;
          KernelCost cost;
          cost.flops = 4 * pairs * heads * head_dim;
          cost.bytes = pairs * heads;  // every head reads the mask, a byte for a pair
          cost.seconds = cost.flops / (kShare * peak_flops);
          cost.launches = 2;  // the mask's copy
          return cost;
        },
    .host_seconds =
        [](double patches) {
          // A copy of pageable memory to the device: 9 GB/s on the H200's machine.
          constexpr double kCopyRate = 9e9;
          return patches * patches / kCopyRate;
        },
};

// In the order of --mm-attention-backend's choices; the first that is SGLang's default on a device is chosen
// there where none is named.
constexpr FullAttentionDescription kKernels[] = {
    {
        .name = "fa3",
        .backend = "fa3",
        .devices = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper},
        .default_on = {GpuGeneration::kHopper},
        .computed_head_dim = flash_head_dim,
        .set_tiles =
            [](GpuGeneration, std::uint32_t head_dim, ExtendPlan& plan) {
              plan.tile_m = plan.rows = flash3_tile_m(head_dim);
              plan.tile_n = flash3_tile_n(head_dim);
            },
        // The kernel of heads of up to 96, which text models' tables do not have, by encoders' times on an
        // H200 (heads of 72 and 80, 8,000 to 32,000 patches).
        .factor = [](std::uint32_t head_dim) { return flash_head_dim(head_dim) == 96 ? 1.2 : 1; },
    },
    {
        .name = "triton_attn",
        .backend = "triton",
        .devices = kCudaGenerations | GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kXpu},
        // On Intel's GPUs 0.5.23 has a kernel of its own (xpu_attn), which the matrices do not list; 0.5.12
        // takes this one.
        .default_on = {GpuGeneration::kTuring, GpuGeneration::kAmpere, GpuGeneration::kAda,
                       GpuGeneration::kBlackwellSm120, GpuGeneration::kXpu},
        .computed_head_dim =
            [](std::uint32_t head_dim) {
              return triton_aligned(head_dim) ? head_dim : std::bit_ceil(head_dim);
            },
        .set_tiles =
            [](GpuGeneration generation, std::uint32_t, ExtendPlan& plan) {
              plan.tile_m = plan.rows = plan.tile_n = kLargeTritonBlocks.contains(generation) ? 128 : 64;
            },
        // By its time on an H200, of 14 shapes with heads of 64 to 80: within 6 % in the median.
        .factor = [](std::uint32_t head_dim) { return triton_aligned(head_dim) ? 1.15 : 1.95; },
    },
    {
        .name = "sdpa",
        .backend = "torch_native",
        .devices =
            kCudaGenerations | GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kXpu, GpuGeneration::kCpu},
        // 0.5.23 has a kernel of its own there (amx_attn), which the matrices do not list.
        .default_on = {GpuGeneration::kCpu},
        .packed = &kMasked,
    },
    {
        .name = "fa4",
        .backend = "fa4",
        .devices = {GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
        .default_on = {GpuGeneration::kBlackwell},
        .computed_head_dim = flash_head_dim,
    },
    {
        .name = "aiter_attn",
        .backend = "aiter",
        .devices = {GpuGeneration::kRocm},
        .default_on =
            {GpuGeneration::kRocm},  // with SGLANG_USE_AITER, as in SGLang's images for these devices
    },
    {
        .name = "ascend_attn",
        .backend = "ascend",
        .devices = {GpuGeneration::kNpu},
        .default_on = {GpuGeneration::kNpu},
    },
};

// Patches of all sequences.
double patches_of(std::span<const SequenceGroup> sequences) {
  double length = 0;
  for (const SequenceGroup& group : sequences) length += double(group.length) * group.count;
  return length;
}

}  // namespace

std::span<const FullAttentionDescription> full_attention_list() { return kKernels; }

const FullAttentionDescription& default_full_attention(GpuGeneration generation) {
  for (const FullAttentionDescription& kernel : kKernels) {
    if (kernel.default_on.contains(generation)) return kernel;
  }
  throw std::logic_error("no --mm-attention-backend is the default of " + std::string(to_string(generation)));
}

const FullAttentionDescription& find_full_attention(std::string_view name, GpuGeneration generation,
                                                    std::string_view gpu) {
  std::vector<std::string_view> names;
  for (const FullAttentionDescription& kernel : kKernels) {
    names.push_back(kernel.name);
    if (kernel.name != name) continue;
    if (!kernel.devices.contains(generation))
      throw_user_error("--mm-attention-backend {}: runs on {}, and {} is {}; SGLang's default there is {}",
                       name, kernel.devices.names(), gpu, to_string(generation),
                       default_full_attention(generation).name);
    return kernel;
  }
  const bool others = name == "flashinfer_cudnn" || name == "amx_attn" || name == "xpu_attn";
  throw_user_error("--mm-attention-backend {}: is not {}; use one of {}", name,
                   others ? "in the MultiModal column of SGLang's support matrix and not simulated" : "known",
                   fmt::join(names, ", "));
}

std::string FullAttentionDescription::operator_class() const {
  return fmt::format("attention.{}.extend", backend);
}

FullAttention::FullAttention(const proto::HardwareProfile& profile, const FullAttentionDescription& kernel)
    : kernel_(&kernel),
      peak_flops_(profile.dense_flops_bf16()),
      generation_(parse_gpu_generation(profile.architecture()).value()),
      cost_(profile, coefficients_of<PlanCoefficients>(profile, kernel.operator_class())) {}

KernelCost FullAttention::layer(std::span<const SequenceGroup> sequences, std::uint32_t heads,
                                std::uint32_t head_dim, bool flat) const {
  LayerShape shape;
  shape.num_q_heads = shape.num_kv_heads = heads;
  shape.head_dim = shape.v_head_dim = kernel_->computed_head_dim(head_dim);
  if (flat && kernel_->packed != nullptr)
    return kernel_->packed->layer(patches_of(sequences), heads, shape.head_dim, peak_flops_);
  ExtendPlan plan;
  plan.head_blocks = heads;
  if (kernel_->set_tiles != nullptr) kernel_->set_tiles(generation_, shape.head_dim, plan);
  KernelCost cost = cost_.encode(plan, sequences, shape);
  if (kernel_->factor != nullptr) cost.seconds *= kernel_->factor(head_dim);
  return cost;
}

double FullAttention::host_seconds(std::span<const SequenceGroup> sequences, bool flat) const {
  return flat && kernel_->packed != nullptr ? kernel_->packed->host_seconds(patches_of(sequences)) : 0;
}

}  // namespace tpsim::attention
