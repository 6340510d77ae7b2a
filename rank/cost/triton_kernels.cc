#include "rank/cost/triton_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "proto/base/ceil_div.h"

namespace tpsim::rank {
namespace {

constexpr double kColumns = 256;        // of a tile: 2 * num_warps * 2 * 8 (compute_block_n)
constexpr std::uint64_t kPadding = 64;  // triton_kernels_padding_alignment of SGLang's mxfp4.py
constexpr std::uint64_t kFewRows = 64;  // of an expert: blocks are made for twice as many
constexpr std::uint64_t kLeastBlock = 16;
constexpr std::uint64_t kMostBlock = 128;
constexpr std::uint32_t kLaunches = 14;

// Passes of one or two tokens, whose rows are fewer than a block or no multiple of 16, take as much less in a
// real server (gpt-oss-20b on an H200, 24 layers: 3.54 and 3.62 ms, with 3 to 16 tokens 4.00 to 4.15). Why is
// not established; the other kernels of the pass show nothing like it in other models.
constexpr double kFewestRows = 16;
constexpr double kFewestSaving = 17e-6;

std::uint32_t loaded(const RoutedExperts& experts) {
  return experts.loaded_experts > 0 ? experts.loaded_experts : experts.experts;
}

// Rows that all experts would have of an even choice decide, whatever the choice is.
double block_rows(double rows, std::uint32_t experts) {
  const auto each = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rows) / experts);
  return each <= kFewRows ? static_cast<double>(std::clamp(std::bit_ceil(2 * each), kLeastBlock, kFewRows))
                          : static_cast<double>(std::min(std::bit_ceil(each), kMostBlock));
}

}  // namespace

TritonExpertsPlan plan_triton_experts(const RoutedExperts& experts, const ExpertWork& work) {
  TritonExpertsPlan plan;
  plan.block_rows = block_rows(work.rows, loaded(experts));
  const double each = work.rows / work.hit;
  // Where rows fall at random, an expert's last block is half full on average.
  const double own =
      experts.in_turn || experts.same_choice
          ? std::ceil(each / plan.block_rows)
          : std::max(1.0, each / plan.block_rows + (plan.block_rows - 1) / (2 * plan.block_rows));
  plan.blocks = work.hit * own;
  plan.width = static_cast<double>(ceil_align(experts.width, kPadding));
  plan.up_tiles = plan.blocks * std::ceil(2 * plan.width / kColumns);
  plan.down_tiles = plan.blocks * std::ceil(static_cast<double>(experts.hidden) / kColumns);
  // Shared memory holds four stages of two small tiles, or of a large one.
  plan.resident = plan.block_rows < static_cast<double>(kMostBlock) ? 2 : 1;
  return plan;
}

namespace {

KernelCost planned_cost(const RoutedExperts& experts, const ExpertWork& work, const WeightFormat& weight,
                        const OperatorCoefficients& coefficients, const TritonExpertsDevice& device) {
  const TritonExpertsPlan plan = plan_triton_experts(experts, work);
  const auto hidden = static_cast<double>(experts.hidden);
  const auto padded = static_cast<std::uint64_t>(plan.width);
  const auto product = [&](double tiles, double k, double bytes) {
    const double own_flops = device.flops * coefficients.compute / device.multiprocessors;
    const double tile = coefficients.tile_seconds + coefficients.k_seconds * k +
                        2 * plan.block_rows * kColumns * k / own_flops;
    const double waves = std::ceil(tiles / (device.multiprocessors * plan.resident));
    return std::max(waves * plan.resident * tile, bytes / (device.bandwidth * coefficients.memory));
  };
  const double up = static_cast<double>(weight.bytes(2 * padded, experts.hidden)) * work.hit +
                    2 * work.rows * (hidden + plan.width);
  const double down = static_cast<double>(weight.bytes(experts.hidden, padded)) * work.hit +
                      2 * work.rows * (plan.width + hidden);
  const double sums = 2 * (work.rows + experts.tokens) * hidden * coefficients.rows;
  const double saved = work.rows < kFewestRows ? kFewestSaving : 0;
  return {coefficients.fixed_seconds - std::min(saved, coefficients.fixed_seconds) +
              product(plan.up_tiles, hidden, up) + product(plan.down_tiles, plan.width, down) +
              sums / device.bandwidth,
          6 * work.rows * hidden * static_cast<double>(experts.width), up + down, kLaunches};
}

}  // namespace

KernelCost triton_experts_cost(const RoutedExperts& experts, const ExpertWork& work,
                               const WeightFormat& weight, const OperatorCoefficients& coefficients,
                               const TritonExpertsDevice& device) {
  KernelCost cost = planned_cost(experts, work, weight, coefficients, device);
  // Larger blocks make fewer tiles, and the kernel may be faster with more rows; a price is not.
  const double own = block_rows(work.rows, loaded(experts));
  for (std::uint64_t each : {kLeastBlock / 2, kFewRows / 4, kFewRows}) {  // the most rows of a block size
    const double rows = static_cast<double>((each + 1) * loaded(experts) - 1);
    if (rows >= work.rows || block_rows(rows, loaded(experts)) >= own) break;
    RoutedExperts fewer = experts;
    fewer.tokens = std::floor(experts.tokens * rows / work.rows);
    fewer.rows = experts.rows * fewer.tokens / experts.tokens;
    fewer.hit = std::min(experts.hit, fewer.rows);
    if (fewer.tokens < 1) continue;
    const ExpertWork their = work_of(fewer);
    cost.seconds = std::max(cost.seconds, planned_cost(fewer, their, weight, coefficients, device).seconds);
  }
  return cost;
}

}  // namespace tpsim::rank
