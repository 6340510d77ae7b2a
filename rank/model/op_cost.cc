#include "rank/model/op_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "rank/model/power.h"

namespace tpsim::rank {
namespace {

using Field = std::pair<const char*, double OperatorCoefficients::*>;
constexpr std::array<Field, 4> kParameters = {{{"tile_seconds", &OperatorCoefficients::tile_seconds},
                                               {"overlap", &OperatorCoefficients::overlap},
                                               {"fill", &OperatorCoefficients::fill},
                                               {"per_gpu_seconds", &OperatorCoefficients::per_gpu_seconds}}};

constexpr double kActivation = 2;  // bytes of an element (bf16)

struct Tile {
  double m, n;
};
// What each GPU sends for a reduce-scatter and an all-gather.
double ring_sent(double bytes, std::uint32_t gpus) { return 2 * bytes * (gpus - 1) / gpus; }

constexpr std::array<Tile, 5> kTiles = {{{64, 64}, {64, 128}, {128, 128}, {128, 256}, {256, 128}}};

}  // namespace

OperatorCoefficients operator_coefficients(const proto::HardwareProfile& profile,
                                           const std::string& operator_class) {
  OperatorCoefficients c;
  // DeepEP's own figures over the H800's 200 GB/s of NVLink (op_cost.h).
  if (operator_class == "deepep.normal") c.memory = 153.0 / 200;
  if (operator_class == "deepep.low_latency") c.memory = 116.5 / 200;  // dispatch and combine together
  for (const proto::OperatorEfficiency& entry : profile.efficiencies()) {
    if (entry.operator_class() != operator_class) continue;
    c.compute = entry.compute();
    c.memory = entry.memory();
    c.fixed_seconds = entry.fixed_seconds();
    for (const auto& [name, member] : kParameters) {
      const auto found = entry.parameters().find(name);
      if (found != entry.parameters().end()) c.*member = found->second;
    }
    break;
  }
  return c;
}

std::span<const std::string_view> operator_classes() {
  static constexpr std::array<std::string_view, 10> kClasses = {
      "gemm",           "moe",        "all_reduce.custom", "all_reduce.nccl",    "all_gather",
      "reduce_scatter", "all_to_all", "deepep.normal",     "deepep.low_latency", "elementwise"};
  return kClasses;
}

std::vector<std::string_view> operator_parameter_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, member] : kParameters) names.push_back(name);
  return names;
}

void write_operator(const OperatorCoefficients& c, proto::OperatorEfficiency& out) {
  out.set_compute(c.compute);
  out.set_memory(c.memory);
  out.set_fixed_seconds(c.fixed_seconds);
  for (const auto& [name, member] : kParameters) (*out.mutable_parameters())[name] = c.*member;
}

OperatorCosts::OperatorCosts(const proto::HardwareProfile& profile)
    : gemm_(operator_coefficients(profile, "gemm")),
      moe_(operator_coefficients(profile, "moe")),
      custom_(operator_coefficients(profile, "all_reduce.custom")),
      nccl_(operator_coefficients(profile, "all_reduce.nccl")),
      gather_(operator_coefficients(profile, "all_gather")),
      scatter_(operator_coefficients(profile, "reduce_scatter")),
      all_to_all_(operator_coefficients(profile, "all_to_all")),
      deepep_(operator_coefficients(profile, "deepep.normal")),
      low_latency_(operator_coefficients(profile, "deepep.low_latency")),
      elementwise_(operator_coefficients(profile, "elementwise")),
      flops_(profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      link_(profile.link_bandwidth()),
      multiprocessors_(profile.multiprocessors()),
      nvlink_(profile.nvlink()) {}

double OperatorCosts::tiles_seconds(const OperatorCoefficients& c, double n, double k, double tiles_m,
                                    double bytes, double tile_m, double tile_n) const {
  const double tiles = tiles_m * std::ceil(n / tile_n);
  const double tile = 2 * tile_m * tile_n * k / (flops_ * c.compute / multiprocessors_) + c.tile_seconds;
  // Full waves, and the last one charged by how full it is, but for at least half of it.
  const double waves = tiles / multiprocessors_;
  const double full = std::floor(waves);
  const double rest = waves - full;
  const double arithmetic = (full + (rest > 0 ? std::max(rest, full > 0 ? 0.5 : 1.0) : 0)) * tile;
  // Few tiles cannot draw the whole bandwidth; split-k helps up to a point.
  const double reach = std::min(1.0, c.fill * tiles / multiprocessors_);
  const double memory = bytes / (bandwidth_ * c.memory * reach);
  return std::max(arithmetic, memory) + c.overlap * std::min(arithmetic, memory);
}

KernelCost OperatorCosts::gemm(double m, double n, double k, double bytes) const {
  KernelCost cost;
  cost.flops = 2 * m * n * k;
  cost.bytes = (m * k + k * n + m * n) * bytes;
  cost.launches = 1;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double seconds = tiles_seconds(gemm_, n, k, std::ceil(m / tile.m), cost.bytes, tile.m, tile.n);
    if (best == 0 || seconds < best) best = seconds;
  }
  cost.seconds = gemm_.fixed_seconds + best;
  return cost;
}

KernelCost OperatorCosts::moe(double tokens, double hidden, double intermediate, double experts, double top_k,
                              double bytes) const {
  ExpertRows rows;
  rows.rows = tokens * top_k;
  // Expected number of experts that are hit by rows spread evenly.
  rows.hit = experts * (1 - power(1 - 1 / experts, static_cast<std::uint64_t>(rows.rows)));
  return moe(rows, hidden, intermediate, bytes);
}

KernelCost OperatorCosts::moe(const ExpertRows& of, double hidden, double intermediate, double bytes) const {
  KernelCost cost;
  const double rows = of.rows;
  const double hit = of.hit;
  const double per_expert = rows / hit;
  const double tile_m = per_expert > 64 ? 128 : per_expert > 16 ? 64 : 16;
  const double tiles_m = hit * std::ceil(per_expert / tile_m);
  const double weights = hit * 3 * hidden * intermediate * bytes;
  cost.flops = 6 * rows * hidden * intermediate;
  cost.bytes = weights + rows * (2 * hidden + 3 * intermediate) * bytes;
  cost.launches = 5;  // top-k, alignment of rows, two grouped GEMMs, activation and sum
  cost.seconds =
      moe_.fixed_seconds + tiles_seconds(moe_, 3 * intermediate, hidden, tiles_m, cost.bytes, tile_m, 128);
  if (of.elsewhere > 0) {
    // With expert parallelism SGLang's fused kernel (fused_moe_triton) fills the rows of visits to other
    // ranks with zeros, activates and adds them up as well. The factor is fitted to moe_perf's bf16 rows with
    // moe_ep_size 2 to 32 of h200_sxm and h100_sxm: median errors 15 and 14 %, 27 and 25 % without.
    constexpr double kPasses = 1.6;
    const double skipped = of.elsewhere * (2 * hidden + 5 * intermediate) * kActivation;
    cost.bytes += skipped;
    cost.seconds += kPasses * skipped / bandwidth_;
  }
  return cost;
}

bool OperatorCosts::uses_custom_all_reduce(double bytes, std::uint32_t gpus) const {
  return gpus <= 8 && gpus % 2 == 0 && bytes <= kCustomAllReduceLimit && (nvlink_ || gpus == 2);
}

double OperatorCosts::all_reduce_sent(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return 0;
  const double one_shot_limit = (gpus <= 4 ? 512 : 256) * 1024.0;
  if (uses_custom_all_reduce(bytes, gpus) && (gpus == 2 || bytes < one_shot_limit)) return bytes * (gpus - 1);
  return ring_sent(bytes, gpus);
}

KernelCost OperatorCosts::custom_all_reduce(double bytes, std::uint32_t gpus) const {
  const double sent = all_reduce_sent(bytes, gpus);
  return {custom_.fixed_seconds + custom_.per_gpu_seconds * gpus + sent / (link_ * custom_.memory), 0,
          2 * bytes, 1};
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
