#include "rank/model/op_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "rank/model/power.h"

namespace tpsim::rank {
namespace {

// What each GPU sends for a reduce-scatter and an all-gather.
double ring_sent(double bytes, std::uint32_t gpus) { return 2 * bytes * (gpus - 1) / gpus; }

using TileShape = std::array<double, 2>;
// Tile shapes of GEMM libraries, and of the grouped products of MoE kernels.
constexpr double kGemmTiles[][2] = {{64, 64}, {64, 128}, {128, 128}, {128, 256}, {256, 128}};
constexpr TileShape kMoeTiles[] = {{16, 64}, {16, 128}, {32, 128}, {64, 128}, {128, 128}, {128, 256}};
// Triton's default configurations have one each (get_default_config of SGLang's fused_moe_triton_config.py).
constexpr TileShape kMoeDefaultTiles[] = {{64, 64}};
constexpr TileShape kMoeDefaultFewTiles[] = {{16, 32}};

std::span<const TileShape> moe_tiles(MatrixClass kernel) {
  if (kernel == MatrixClass::kMoeDefault) return kMoeDefaultTiles;
  if (kernel == MatrixClass::kMoeDefaultFew) return kMoeDefaultFewTiles;
  return kMoeTiles;
}

// Coefficients of `id`, or of the class that stands in for it.
OperatorCoefficients matrix_coefficients(const proto::HardwareProfile& profile, MatrixClass id) {
  for (;;) {
    const MatrixClassRow& row = matrix_class(id);
    if (find_efficiency(profile, row.name) != nullptr) return operator_coefficients(profile, row.name);
    if (row.stands_in == id) return {};
    id = row.stands_in;
  }
}

}  // namespace

OperatorCoefficients operator_coefficients(const proto::HardwareProfile& profile,
                                           std::string_view operator_class) {
  OperatorCoefficients defaults;
  // DeepEP's own figures over the H800's 200 GB/s of NVLink (op_cost.h).
  if (operator_class == "deepep.normal") defaults.memory = 153.0 / 200;
  if (operator_class == "deepep.low_latency") defaults.memory = 116.5 / 200;  // dispatch and combine together
  return coefficients_of(profile, operator_class, defaults);
}

std::span<const std::string_view> operator_classes() {
  static const std::vector<std::string_view> kClasses = [] {
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < kMatrixClasses; ++i) names.push_back(matrix_class(MatrixClass(i)).name);
    names.insert(names.end(), {"all_reduce.custom", "all_reduce.nccl", "all_gather", "reduce_scatter",
                               "all_to_all", "deepep.normal", "deepep.low_latency", "elementwise", "mla_bmm",
                               "mla_bmm_fp8", kPowerClass, kPowerFp8Class});
    return names;
  }();
  return kClasses;
}

OperatorCosts::OperatorCosts(const proto::HardwareProfile& profile)
    : custom_(operator_coefficients(profile, "all_reduce.custom")),
      nccl_(operator_coefficients(profile, "all_reduce.nccl")),
      gather_(operator_coefficients(profile, "all_gather")),
      scatter_(operator_coefficients(profile, "reduce_scatter")),
      all_to_all_(operator_coefficients(profile, "all_to_all")),
      deepep_(operator_coefficients(profile, "deepep.normal")),
      low_latency_(operator_coefficients(profile, "deepep.low_latency")),
      elementwise_(operator_coefficients(profile, "elementwise")),
      profile_(profile),
      bandwidth_(profile.memory_bandwidth()),
      link_(profile.link_bandwidth()),
      multiprocessors_(profile.multiprocessors()),
      nvlink_(profile.nvlink()) {
  for (std::size_t i = 0; i < kMatrixClasses; ++i) matrix_[i] = matrix_coefficients(profile, MatrixClass(i));
  // Without fp8 arithmetic there is int8 at the same rate, twice that of 16 bit (Turing, Ampere).
  const double fp8 =
      profile.dense_flops_fp8() > 0 ? profile.dense_flops_fp8() : 2 * profile.dense_flops_bf16();
  rates_ = {profile.dense_flops_bf16(), fp8,
            profile.dense_flops_fp4() > 0 ? profile.dense_flops_fp4() : profile.dense_flops_bf16()};
}

double OperatorCosts::rate(MatrixClass kernel) const {
  return rates_[static_cast<std::size_t>(matrix_class(kernel).rate)];
}

double OperatorCosts::tiles_seconds(MatrixClass kernel, double n, double k, double tiles_m, double bytes,
                                    Tile tile) const {
  const OperatorCoefficients& c = matrix_[static_cast<std::size_t>(kernel)];
  const double tiles = tiles_m * std::ceil(n / tile.n);
  const double one = 2 * tile.m * tile.n * k / (rate(kernel) * c.compute / multiprocessors_) +
                     c.tile_seconds + c.k_seconds * k;
  // Full waves, and the last one charged by how full it is, but for at least half of it.
  const double waves = tiles / multiprocessors_;
  const double full = std::floor(waves);
  const double rest = waves - full;
  const double arithmetic = (full + (rest > 0 ? std::max(rest, full > 0 ? 0.5 : 1.0) : 0)) * one;
  // Few tiles cannot draw the whole bandwidth; split-k helps up to a point.
  const double reach = std::min(1.0, c.fill * tiles / multiprocessors_);
  const double memory = bytes / (bandwidth_ * c.memory * reach);
  return std::max(arithmetic, memory) + c.overlap * std::min(arithmetic, memory);
}

KernelCost OperatorCosts::gemm(double m, std::uint64_t n, std::uint64_t k, const WeightFormat& weight) const {
  return gemm(linear_kernel(weight, profile_), m, n, k, weight);
}

KernelCost OperatorCosts::gemm(MatrixClass kernel, double m, std::uint64_t n, std::uint64_t k,
                               const WeightFormat& weight) const {
  const OperatorCoefficients& c = matrix_[static_cast<std::size_t>(kernel)];
  const MatrixClassRow& row = matrix_class(kernel);
  const auto columns = static_cast<double>(n);
  const auto depth = static_cast<double>(k);
  const double product =
      m * depth * row.input_bytes + static_cast<double>(weight.bytes(n, k)) + m * columns * 2;
  double best = 0;
  for (const auto& [tile_m, tile_n] : kGemmTiles) {
    const double seconds =
        tiles_seconds(kernel, columns, depth, std::ceil(m / tile_m), product, {tile_m, tile_n});
    if (best == 0 || seconds < best) best = seconds;
  }
  KernelCost cost{c.fixed_seconds + best, 2 * m * columns * depth, product, 1};
  if (row.quantizes()) {
    const double bytes = m * depth * (2 + row.input_bytes);
    cost.seconds += bytes / (bandwidth_ * c.quantize);
    cost.bytes += bytes;
    ++cost.launches;
  }
  return cost;
}

MatrixClass OperatorCosts::experts(std::string_view architecture, const RoutedExperts& experts,
                                   const WeightFormat& weight) const {
  return expert_kernel(weight, profile_, experts.experts, static_cast<std::uint32_t>(experts.width),
                       experts.tokens, chooses_trtllm(architecture, weight, profile_));
}

KernelCost OperatorCosts::moe(MatrixClass kernel, const RoutedExperts& experts,
                              const WeightFormat& weight) const {
  const OperatorCoefficients& c = matrix_[static_cast<std::size_t>(kernel)];
  const double input = matrix_class(kernel).input_bytes;
  const auto hidden = static_cast<double>(experts.hidden);
  const auto width = static_cast<double>(experts.width);
  const double chosen_rows = experts.tokens * experts.top_k;
  const double rows = std::max(1.0, experts.rows > 0 ? experts.rows : chosen_rows / experts.ep_size);
  const double all_rows = experts.only_own_rows ? rows : chosen_rows;
  const double all_experts = double(experts.experts) * experts.ep_size;
  // Experts that are hit: each token chooses top_k different ones.
  const double chance =
      1 - power(1 - experts.top_k / all_experts, static_cast<std::uint64_t>(experts.tokens));
  const double even = experts.rows > 0 ? experts.hit : experts.experts * chance;
  const double hit =
      experts.in_turn ? std::min<double>(experts.experts, rows) : std::min<double>(rows, std::max(1.0, even));
  const double per_expert = rows / hit;
  const double up = static_cast<double>(weight.bytes(2 * experts.width, experts.hidden)) * hit;
  const double down = static_cast<double>(weight.bytes(experts.hidden, experts.width)) * hit;
  const double up_bytes = up + rows * (hidden * input + 4 * width);
  const double down_bytes = down + rows * (width * input + 2 * hidden);
  double best = 0;
  for (const auto& [tile_m, tile_n] : moe_tiles(kernel)) {
    // Where rows fall at random, an expert's last tile is half full on average.
    const double tiles = experts.in_turn ? std::ceil(per_expert / tile_m)
                                         : std::max(1.0, per_expert / tile_m + (tile_m - 1) / (2 * tile_m));
    const double seconds = tiles_seconds(kernel, 2 * width, hidden, hit * tiles, up_bytes, {tile_m, tile_n}) +
                           tiles_seconds(kernel, hidden, width, hit * tiles, down_bytes, {tile_m, tile_n});
    if (best == 0 || seconds < best) best = seconds;
  }
  // Activation, and the sum over each token's experts: over all rows, also those of other ranks' experts.
  const double between = all_rows * 2 * (3 * width + 2 * hidden) * c.rows;
  // top-k, alignment of rows, two grouped GEMMs, activation and sum; two kernels that quantise the inputs
  return {c.fixed_seconds + best + between / bandwidth_, 6 * rows * hidden * width, up_bytes + down_bytes,
          matrix_class(kernel).quantizes() ? 7U : 5U};
}

bool OperatorCosts::uses_custom_all_reduce(double bytes, std::uint32_t gpus) const {
  return gpus <= 8 && gpus % 2 == 0 && bytes <= kCustomAllReduceLimit && (nvlink_ || gpus == 2);
}

bool OperatorCosts::is_one_shot(double bytes, std::uint32_t gpus) {
  return gpus == 2 || bytes < (gpus <= 4 ? 512 : 256) * 1024.0;
}

double OperatorCosts::all_reduce_sent(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return 0;
  if (uses_custom_all_reduce(bytes, gpus) && is_one_shot(bytes, gpus)) return bytes * (gpus - 1);
  return ring_sent(bytes, gpus);
}

KernelCost OperatorCosts::custom_all_reduce(double bytes, std::uint32_t gpus) const {
  const double sent = all_reduce_sent(bytes, gpus);
  const double barrier = is_one_shot(bytes, gpus) ? 0 : custom_.two_shot_seconds;
  return {custom_.fixed_seconds + barrier + custom_.per_gpu_seconds * gpus + sent / (link_ * custom_.memory),
          0, 2 * bytes, 1};
}

KernelCost OperatorCosts::nccl_all_reduce(double bytes, std::uint32_t gpus) const {
  const double sent = ring_sent(bytes, gpus);
  return {nccl_.fixed_seconds + nccl_.per_gpu_seconds * gpus + sent / (link_ * nccl_.memory), 0, 2 * bytes,
          1};
}

KernelCost OperatorCosts::all_reduce(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return {};
  return uses_custom_all_reduce(bytes, gpus) ? custom_all_reduce(bytes, gpus) : nccl_all_reduce(bytes, gpus);
}

KernelCost OperatorCosts::all_gather(double bytes_per_gpu, std::uint32_t gpus) const {
  if (gpus <= 1) return {};
  const double sent = bytes_per_gpu * (gpus - 1);
  return {gather_.fixed_seconds + gather_.per_gpu_seconds * gpus + sent / (link_ * gather_.memory), 0,
          bytes_per_gpu * gpus, 1};
}

KernelCost OperatorCosts::reduce_scatter(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return {};
  const double sent = bytes * (gpus - 1) / gpus;
  return {scatter_.fixed_seconds + scatter_.per_gpu_seconds * gpus + sent / (link_ * scatter_.memory), 0,
          bytes, 1};
}

KernelCost OperatorCosts::send(double bytes) const {
  return {all_to_all_.fixed_seconds + all_to_all_.per_gpu_seconds * 2 + bytes / (link_ * all_to_all_.memory),
          0, bytes, 1};
}

KernelCost OperatorCosts::expert_exchange(double bytes, bool low_latency) const {
  const OperatorCoefficients& c = low_latency ? low_latency_ : deepep_;
  return {c.fixed_seconds + bytes / (link_ * c.memory), 0, 2 * bytes, low_latency ? 2U : 3U};
}

KernelCost OperatorCosts::elementwise(double bytes) const {
  return {elementwise_.fixed_seconds + bytes / (bandwidth_ * elementwise_.memory), 0, bytes, 1};
}

}  // namespace tpsim::rank
