// SGLang's Triton kernel (context_attention_fwd), which pads heads to the next power of 2. It reads the rows
// of heads that are no multiple of 16 wide (SigLIP's 72) unaligned; aligned rows pay their own width only.
#include <bit>
#include <cstdint>

#include "attention/full/full_attention.h"

namespace tpsim::attention::full {
namespace {

bool triton_aligned(std::uint32_t head_dim) { return head_dim % 16 == 0; }

// BLOCK: 128 from compute capability 9 on and on AMD's devices, which report one.
constexpr GpuGenerations kLargeTritonBlocks = {GpuGeneration::kHopper, GpuGeneration::kBlackwell,
                                               GpuGeneration::kBlackwellSm120, GpuGeneration::kRocm};

}  // namespace

extern const FullAttentionDescription triton_attn = {
    .name = "triton_attn",
    .backend = "triton",
    .devices = kCudaGenerations | GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kXpu},
    // On Intel's GPUs 0.5.23 has a kernel of its own (xpu_attn), which the matrices do not list; 0.5.12 takes
    // this one.
    .default_on = {GpuGeneration::kTuring, GpuGeneration::kAmpere, GpuGeneration::kAda,
                   GpuGeneration::kBlackwellSm120, GpuGeneration::kXpu},
    .computed_head_dim =
        [](std::uint32_t head_dim) { return triton_aligned(head_dim) ? head_dim : std::bit_ceil(head_dim); },
    .set_tiles =
        [](GpuGeneration generation, std::uint32_t, ExtendPlan& plan) {
          plan.tile_m = plan.rows = plan.tile_n = kLargeTritonBlocks.contains(generation) ? 128 : 64;
        },
    // By its time on an H200, of 14 shapes with heads of 64 to 80: within 6 % in the median.
    .factor = [](std::uint32_t head_dim) { return triton_aligned(head_dim) ? 1.15 : 1.95; },
};

}  // namespace tpsim::attention::full
