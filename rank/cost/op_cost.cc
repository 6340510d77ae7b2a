#include "rank/cost/op_cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "attention/gpu_generation.h"
#include "rank/cost/grouped_experts.h"
#include "rank/cost/hardware.h"
#include "rank/cost/triton_kernels.h"

namespace tpsim::rank {
namespace {

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

// Bytes of a logit as the model's head writes it, and in sampling (fp32).
constexpr double kHeadLogit = 2;
constexpr double kLogit = 4;
// PyTorch's reductions give a row to one block of so many threads, unless each had so many elements or more
// (Reduce.cuh); then several blocks share it.
constexpr double kRowThreads = 512;
constexpr double kSharedRow = 256;

// What it takes an expert's second tile of rows to read the weights that its first has read, from the L2, of
// the time that memory takes, in the configuration for few rows, whose tiles run one after another
// (GROUP_SIZE_M 1; eight of the other one's share what they read). Kernels of deepseek-v2-lite's experts in
// decode passes of SGLang 0.5.12 on an H200, all tokens at the same six
// (tests/calibration/measured/h200-sxm_layers.csv): 36.8, 51.2, 62.8 and 75.4 us a layer with 1, 2, 3 and 4
// tiles of 16 rows, 70 to 75 us with two of 64.
constexpr double kReadAgain = 0.35;

// A multiprocessor of NVIDIA's has 128 fp32 lanes that multiply and add.
constexpr double kFp32PerClock = 256;
// cuBLAS's fp32 products of few rows go through all of k one tile at a time: seconds of each step of k for up
// to 32 rows, twice that for 64 and more (decode steps of GLM-4.5-Air and MiniMax-M2, 16 to 64 requests on an
// H200, against one request's, whose product is a vector's:
// tests/calibration/measured/h200-sxm_servers/third).
constexpr double kFp32Step = 5.6e-9;
constexpr double kFp32Rows = 32;
// Times that a product's k may be cut.
constexpr double kSplits[] = {2, 4, 8};

// `id`, or the class that stands in for it.
MatrixClass matrix_entry(const proto::HardwareProfile& profile, MatrixClass id) {
  while (find_efficiency(profile, matrix_class(id).name) == nullptr && matrix_class(id).stands_in != id)
    id = matrix_class(id).stands_in;
  return id;
}

// Points of the corrections' axes of `feature`, of all surfaces, ascending, and as many between them that
// each is at most twice the one before.
std::vector<double> axis_points(const proto::OperatorEfficiency* entry, std::string_view feature) {
  std::set<double> points;
  if (entry != nullptr) {
    for (const proto::CorrectionSurface& surface : entry->corrections()) {
      for (const auto& axis : surface.axes())
        if (axis.feature() == feature) points.insert(axis.points().begin(), axis.points().end());
    }
  }
  std::vector<double> out;
  for (const double point : points) {
    while (!out.empty() && 2 * out.back() < point) out.push_back(2 * out.back());
    out.push_back(point);
  }
  return out;
}

// `size`: the feature that prices must not fall along.
PricedClass priced_class(const proto::HardwareProfile& profile, std::string_view operator_class,
                         std::string_view size) {
  const proto::OperatorEfficiency* const entry = find_efficiency(profile, operator_class);
  return {operator_coefficients(profile, operator_class), Corrections(entry, feature_names(operator_class)),
          axis_points(entry, size)};
}

}  // namespace

OperatorCoefficients operator_coefficients(const proto::HardwareProfile& profile,
                                           std::string_view operator_class) {
  OperatorCoefficients defaults;
  // DeepEP's own figures over the H800's 200 GB/s of NVLink (op_cost.h).
  if (operator_class == "deepep.normal") defaults.memory = 153.0 / 200;
  if (operator_class == "deepep.low_latency") defaults.memory = 116.5 / 200;  // dispatch and combine together
  // An H200's and a B200's (mhc_module_perf).
  if (operator_class == "mhc.pre") defaults.memory = 0.42, defaults.fixed_seconds = 9.3e-6;
  if (operator_class == "mhc.post") defaults.memory = 0.85, defaults.fixed_seconds = 4e-6;
  return coefficients_of(profile, operator_class, defaults);
}

bool use_trtllm_blocks(proto::HardwareProfile& profile) {
  const proto::OperatorEfficiency* const trtllm = find_efficiency(profile, kTrtllmBlockClass);
  if (trtllm == nullptr) return false;
  for (proto::OperatorEfficiency& entry : *profile.mutable_efficiencies()) {
    if (entry.operator_class() != matrix_class(MatrixClass::kGemmFp8Block).name) continue;
    (*entry.mutable_parameters())["reach"] = trtllm->compute();
    entry.set_median_error(trtllm->median_error());
    entry.set_p90_error(trtllm->p90_error());
    entry.set_source(trtllm->source());
    return true;
  }
  return false;
}

std::span<const std::string_view> operator_classes() {
  static const std::vector<std::string_view> kClasses = [] {
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < kMatrixClasses; ++i) names.push_back(matrix_class(MatrixClass(i)).name);
    names.insert(names.end(), {"all_reduce.custom", "all_reduce.nccl", "all_gather", "reduce_scatter",
                               "all_to_all", "deepep.normal", "deepep.low_latency", "elementwise", "mhc.pre",
                               "mhc.post", kCompressedClass, kCompressedFp8Class, "mla_bmm", "mla_bmm_fp8",
                               kPowerClass, kPowerFp8Class, kTrtllmBlockClass});
    names.insert(names.end(), kDeltaClasses.begin(), kDeltaClasses.end());
    for (const GroupedKernel kernel :
         {GroupedKernel::kNormal, GroupedKernel::kLowLatency, GroupedKernel::kMegaMoe})
      names.push_back(grouped_class(kernel));
    return names;
  }();
  return kClasses;
}

OperatorCosts::OperatorCosts(const proto::HardwareProfile& profile)
    : elementwise_(operator_coefficients(profile, "elementwise")),
      mhc_pre_(operator_coefficients(profile, "mhc.pre")),
      mhc_post_(operator_coefficients(profile, "mhc.post")),
      delta_(profile),
      profile_(profile),
      bandwidth_(profile.memory_bandwidth()),
      link_(profile.link_bandwidth()),
      multiprocessors_(profile.multiprocessors()),
      nvlink_(profile.nvlink()),
      node_gpus_(gpus_of_node(profile)) {
  const auto known = [&profile](std::string_view name) {
    return find_efficiency(profile, name) == nullptr ? std::nullopt
                                                     : std::optional(operator_coefficients(profile, name));
  };
  compressed_ = known(kCompressedClass);
  compressed_fp8_ = known(kCompressedFp8Class);
  const auto generation = attention::parse_gpu_generation(profile.architecture());
  cuda_ = generation && attention::kCudaGenerations.contains(*generation);
  fp32_flops_ = profile.multiprocessors() * kFp32PerClock * profile.clock_hz();
  for (std::size_t i = 0; i < kMatrixClasses; ++i) {
    const MatrixClassRow& row = matrix_class(matrix_entry(profile, MatrixClass(i)));
    matrix_[i] = priced_class(profile, row.name, row.moe() ? "tokens" : "m");
  }
  static constexpr std::array<std::string_view, kCollectives> kNames = {
      "all_reduce.custom", "all_reduce.nccl", "all_gather",        "reduce_scatter",
      "all_to_all",        "deepep.normal",   "deepep.low_latency"};
  for (std::size_t i = 0; i < kCollectives; ++i) collectives_[i] = priced_class(profile, kNames[i], "bytes");
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
                                    Tile tile, double hot) const {
  const OperatorCoefficients& c = matrix(kernel).coefficients;
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
  const double memory = bytes / (bandwidth_ * c.memory * hot * reach);
  return std::max(arithmetic, memory) + c.overlap * std::min(arithmetic, memory);
}

double OperatorCosts::product_seconds(MatrixClass kernel, double m, double n, double k, double bytes,
                                      double hot) const {
  const double split = matrix(kernel).coefficients.split_seconds;
  double best = 0;
  const auto take = [&best](double seconds) {
    if (best == 0 || seconds < best) best = seconds;
  };
  for (const auto& [tile_m, tile_n] : kGemmTiles) {
    const double tiles_m = std::ceil(m / tile_m);
    take(tiles_seconds(kernel, n, k, tiles_m, bytes, {tile_m, tile_n}, hot));
    // A wave of tiles that is full already gains nothing by more and shorter ones.
    if (split == 0 || tiles_m * std::ceil(n / tile_n) > multiprocessors_) continue;
    for (const double parts : kSplits) {
      // The parts' sums, in fp32, mostly stay in the L2.
      const double sums = parts * m * n * 4 / bandwidth_;
      take(tiles_seconds(kernel, n, k / parts, parts * tiles_m, bytes, {tile_m, tile_n}, hot) + split + sums);
    }
  }
  return best;
}

KernelCost OperatorCosts::gemm(double m, std::uint64_t n, std::uint64_t k, const WeightFormat& weight) const {
  return gemm(linear_kernel(weight, profile_), m, n, k, weight);
}

KernelCost OperatorCosts::gemm_physics(MatrixClass kernel, double m, std::uint64_t n, std::uint64_t k,
                                       const WeightFormat& weight, bool hot) const {
  const OperatorCoefficients& c = matrix(kernel).coefficients;
  const MatrixClassRow& row = matrix_class(kernel);
  const auto columns = static_cast<double>(n);
  const auto depth = static_cast<double>(k);
  const double product =
      m * depth * row.input_bytes + static_cast<double>(weight.bytes(n, k)) + m * columns * 2;
  const double seconds = product_seconds(kernel, m, columns, depth, product, hot ? c.hot_memory : 1);
  KernelCost cost{c.fixed_seconds + seconds, 2 * m * columns * depth, product, 1};
  if (row.quantizes()) {
    const double bytes = m * depth * (2 + row.input_bytes);
    cost.seconds += bytes / (bandwidth_ * c.quantize);
    cost.bytes += bytes;
    ++cost.launches;
  }
  return cost;
}

KernelCost OperatorCosts::gemm(MatrixClass kernel, double m, std::uint64_t n, std::uint64_t k,
                               const WeightFormat& weight, bool hot) const {
  KernelCost cost = gemm_physics(kernel, m, n, k, weight, hot);
  const PricedClass& priced = matrix(kernel);
  const double reached = cost.flops / (rate(kernel) * priced.coefficients.reach);
  if (priced.corrections.empty()) {
    if (priced.coefficients.reach < 1) cost.seconds = std::max(cost.seconds, reached);
    return cost;
  }
  const auto corrected = [&](double rows, double seconds) {
    const double features[] = {rows, static_cast<double>(n), static_cast<double>(k)};
    return seconds * priced.corrections.factor(features);
  };
  const MonotonePrice& price = prices_.of(
      {static_cast<std::uint64_t>(kernel), n, k, weight.bytes(n, k), hot}, priced.points,
      [&](double rows) { return corrected(rows, gemm_physics(kernel, rows, n, k, weight, hot).seconds); });
  cost.seconds = std::max(price(m, corrected(m, cost.seconds)), reached);
  // Of the input that is quantised first only what the product reads of it has to come from memory.
  if (!hot) {
    const double input = m * static_cast<double>(k) * matrix_class(kernel).input_bytes;
    const double least = input + static_cast<double>(weight.bytes(n, k)) + 2 * m * static_cast<double>(n);
    cost.seconds = std::max(cost.seconds, least / bandwidth_);
  }
  return cost;
}

MatrixClass OperatorCosts::experts(TrtllmExperts chosen, const RoutedExperts& experts,
                                   const WeightFormat& weight) const {
  return expert_kernel(weight, profile_, experts.experts, static_cast<std::uint32_t>(experts.width),
                       experts.tokens, chooses_trtllm(chosen, weight, profile_), experts.ep_size);
}

KernelCost OperatorCosts::moe_physics(MatrixClass kernel, const RoutedExperts& experts,
                                      const ExpertWork& work, const WeightFormat& weight) const {
  const OperatorCoefficients& c = matrix(kernel).coefficients;
  if (kernel == MatrixClass::kMoeTritonKernels)
    return triton_experts_cost(experts, work, weight, c, {rate(kernel), bandwidth_, multiprocessors_});
  const double input = matrix_class(kernel).input_bytes;
  const auto hidden = static_cast<double>(experts.hidden);
  const auto width = static_cast<double>(experts.width);
  const double ups = experts.gated ? 2 : 1;
  const auto& [rows, all_rows, hit] = work;
  const double per_expert = rows / hit;
  const double up =
      static_cast<double>(weight.bytes((experts.gated ? 2 : 1) * experts.width, experts.hidden)) * hit;
  const double down = static_cast<double>(weight.bytes(experts.hidden, experts.width)) * hit;
  const double up_bytes = up + rows * (hidden * input + 2 * ups * width);
  const double down_bytes = down + rows * (width * input + 2 * hidden);
  double best = 0;
  for (const auto& [tile_m, tile_n] : moe_tiles(kernel)) {
    // Where rows fall at random, an expert's last tile is half full on average.
    const double tiles = experts.in_turn || experts.same_choice
                             ? std::ceil(per_expert / tile_m)
                             : std::max(1.0, per_expert / tile_m + (tile_m - 1) / (2 * tile_m));
    // With few rows an expert, as in what was measured, there is no second tile to read the weights again.
    const bool reads_again = experts.same_choice && kernel == MatrixClass::kMoeDefaultFew;
    const double again = reads_again ? kReadAgain * (tiles - 1) : 0;
    const Tile tile = {tile_m, tile_n};
    const double seconds =
        tiles_seconds(kernel, ups * width, hidden, hit * tiles, up_bytes + again * up, tile, 1) +
        tiles_seconds(kernel, hidden, width, hit * tiles, down_bytes + again * down, tile, 1);
    if (best == 0 || seconds < best) best = seconds;
  }
  // Activation, and the sum over each token's experts: over all rows, also those of other ranks' experts.
  const double between = all_rows * 2 * ((ups + 1) * width + 2 * hidden) * c.rows;
  // top-k, alignment of rows, two grouped GEMMs, activation and sum; two kernels that quantise the inputs
  return {c.fixed_seconds + best + between / bandwidth_, 2 * (ups + 1) * rows * hidden * width,
          up_bytes + down_bytes, matrix_class(kernel).quantizes() ? 7U : 5U};
}

double OperatorCosts::moe_factor(MatrixClass kernel, RoutedExperts experts,
                                 const WeightFormat& weight) const {
  const PricedClass& priced = matrix(kernel);
  if (priced.corrections.empty() || experts.same_choice) return 1;
  experts.rows = experts.hit = 0;
  const auto physics = [&](double tokens) {
    experts.tokens = tokens;
    return moe_physics(kernel, experts, work_of(experts), weight).seconds;
  };
  const auto corrected = [&](double tokens, double seconds) {
    experts.tokens = tokens;
    const ExpertWork work = work_of(experts);
    const double features[] = {tokens,
                               static_cast<double>(experts.hidden),
                               static_cast<double>(experts.width),
                               static_cast<double>(experts.experts),
                               static_cast<double>(experts.top_k),
                               work.rows / work.hit};
    return seconds * priced.corrections.factor(features);
  };
  const double tokens = experts.tokens;
  const std::uint64_t flags = 4U * !experts.gated + 2U * experts.only_own_rows + experts.in_turn;
  const MonotonePrice& price = prices_.of(
      {static_cast<std::uint64_t>(kernel), experts.hidden, experts.width,
       (std::uint64_t{experts.experts} << 32U) + experts.top_k,
       (std::uint64_t{experts.ep_size} << 3U) + flags, weight.bytes(experts.hidden, experts.width)},
      priced.points, [&](double point) { return corrected(point, physics(point)); });
  const double seconds = physics(tokens);
  return price(tokens, corrected(tokens, seconds)) / seconds;
}

KernelCost OperatorCosts::moe(MatrixClass kernel, const RoutedExperts& experts,
                              const WeightFormat& weight) const {
  KernelCost cost = moe_physics(kernel, experts, work_of(experts), weight);
  if (matrix(kernel).corrections.empty()) return cost;
  cost.seconds = std::max({cost.seconds * moe_factor(kernel, experts, weight), cost.flops / rate(kernel),
                           cost.bytes / bandwidth_});
  return cost;
}

double OperatorCosts::fp32_product(double m, double n, double k) const {
  if (!cuda_ || m <= 1) return 0;
  const double steps = k * kFp32Step * std::clamp(m / kFp32Rows, 1.0, 2.0);
  return fp32_flops_ > 0 ? std::max(steps, 2 * m * n * k / fp32_flops_) : steps;
}

KernelCost OperatorCosts::elementwise(double bytes) const {
  return {elementwise_.fixed_seconds + bytes / (bandwidth_ * elementwise_.memory), 0, bytes, 1};
}

KernelCost OperatorCosts::compressed_product(const OperatorCoefficients& c,
                                             const proto::HardwareProfile& profile, double m, double n,
                                             double k, bool fp8) {
  KernelCost cost;
  const double element = fp8 ? 1 : kElement;
  cost.flops = 2 * m * n * k;
  cost.bytes = n * k * element + m * (k * element + n * kElement);
  cost.launches = 1;
  const double arithmetic =
      cost.flops / ((fp8 ? profile.dense_flops_fp8() : profile.dense_flops_bf16()) * c.compute);
  const double memory = cost.bytes / (profile.memory_bandwidth() * c.memory);
  cost.seconds = c.fixed_seconds + std::max(arithmetic, memory) + c.overlap * std::min(arithmetic, memory);
  return cost;
}

KernelCost OperatorCosts::compressed_product(double m, std::uint64_t n, std::uint64_t k,
                                             const WeightFormat& weight) const {
  const bool fp8 = weight.kind == WeightFormat::Kind::kFp8;
  const std::optional<OperatorCoefficients>& c = fp8 ? compressed_fp8_ : compressed_;
  if (!c || (weight.quantized() && !fp8)) return gemm(m, n, k, weight);
  return compressed_product(*c, profile_, m, static_cast<double>(n), static_cast<double>(k), fp8);
}

KernelCost OperatorCosts::hyper_connection(bool pre, double rows, double hidden, double streams) const {
  // Streams in and one input out; or streams and what was said in, and streams out.
  const OperatorCoefficients& c = pre ? mhc_pre_ : mhc_post_;
  const double bytes = rows * hidden * kElement * (pre ? streams + 1 : 2 * streams + 1);
  const double memory = bytes / (bandwidth_ * c.memory);
  return {std::max(c.fixed_seconds, memory) + c.overlap * std::min(c.fixed_seconds, memory), 0, bytes,
          pre ? 2U : 1U};
}

KernelCost OperatorCosts::hyper_connections(double rows, double hidden, double streams) const {
  KernelCost cost = hyper_connection(true, rows, hidden, streams);
  cost += hyper_connection(false, rows, hidden, streams);
  return cost;
}

KernelCost OperatorCosts::sampling(double rows, double vocabulary) const {
  const double logits = rows * vocabulary;
  KernelCost cast = elementwise(logits * kLogit);
  KernelCost largest = cast;
  if (elementwise_.k_seconds > 0) {
    cast.bytes = logits * (kHeadLogit + kLogit);
    cast.seconds = elementwise_.fixed_seconds + cast.bytes / (bandwidth_ * elementwise_.quantize);
    const double row = std::min(vocabulary, kRowThreads * kSharedRow);
    largest.seconds += (vocabulary > row ? row / 4 : row) * elementwise_.k_seconds;
  }
  cast += largest;
  return cast;
}

}  // namespace tpsim::rank
