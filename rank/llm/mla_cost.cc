#include "rank/llm/mla_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "attention/gpu_generation.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

constexpr double kMostRows = 1 << 16;  // of a pass: far beyond what was measured

struct Tile {
  double m, n;
};
constexpr std::array<Tile, 4> kTiles = {{{64, 64}, {64, 128}, {128, 128}, {128, 256}}};

}  // namespace

KernelCost batched_gemm(const OperatorCoefficients& c, const Corrections& corrections,
                        const proto::HardwareProfile& profile, double b, double m, double n, double k,
                        double bytes, double memory_share) {
  const double flops =
      bytes < 2 && profile.dense_flops_fp8() > 0 ? profile.dense_flops_fp8() : profile.dense_flops_bf16();
  KernelCost cost;
  cost.flops = 2 * b * m * n * k;
  cost.bytes = b * (m * k * bytes + k * n * bytes + m * n * kElement);
  cost.launches = 1;
  if (bytes < 2) {  // the input is quantised by a kernel of its own
    cost.bytes += b * m * k * (kElement + bytes);
    ++cost.launches;
  }
  double arithmetic = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = b * std::ceil(m / tile.m) * std::ceil(n / tile.n);
    const double one =
        2 * tile.m * tile.n * k / (flops * c.compute / profile.multiprocessors()) + c.tile_seconds;
    const double waves = std::max(1.0, tiles / profile.multiprocessors());
    if (arithmetic == 0 || waves * one < arithmetic) arithmetic = waves * one;
  }
  const double memory = memory_share * cost.bytes / (profile.memory_bandwidth() * c.memory);
  cost.seconds = c.fixed_seconds + std::max(arithmetic, memory) + c.overlap * std::min(arithmetic, memory);
  if (corrections.empty()) return cost;
  const double features[] = {b, m, n};
  static_assert(std::size(features) == std::size(kBatchedGemmFeatures));
  const double least = std::max(cost.flops / flops, memory_share * cost.bytes / profile.memory_bandwidth());
  cost.seconds = std::max(cost.seconds * corrections.factor(features), least);
  return cost;
}

MlaCosts::MlaCosts(const ModelConfig& model, const Shard& shard, const proto::HardwareProfile& profile,
                   const WeightFormat& kv_b)
    : profile_(profile),
      bmm_(operator_coefficients(profile, product_class(kv_b))),
      bmm_corrections_(find_efficiency(profile, product_class(kv_b)), kBatchedGemmFeatures),
      heads_(shard.q_heads.count()),
      latent_(model.mla.kv_lora_rank),
      nope_(model.mla.qk_nope_head_dim),
      rope_(model.mla.qk_rope_head_dim),
      v_dim_(model.mla.v_head_dim),
      product_bytes_(kv_b.kind == WeightFormat::Kind::kFp8 ? 1 : 2),
      kv_b_(kv_b),
      widens_(kv_b.kind == WeightFormat::Kind::kFp8 && profile.dense_flops_fp4() == 0 &&
              attention::parse_gpu_generation(profile.architecture()) == attention::GpuGeneration::kRocm) {
  if (bmm_corrections_.empty()) return;
  std::vector<double> rows;
  for (double size = 1; size <= kMostRows; size = std::ceil(1.1 * size)) rows.push_back(size);
  into_latent_ = MonotonePrice(rows, [this](double m) { return product(m, latent_, nope_).seconds; });
  out_of_latent_ = MonotonePrice(rows, [this](double m) { return product(m, v_dim_, latent_).seconds; });
}

KernelCost MlaCosts::product(double rows, double n, double k) const {
  return batched_gemm(bmm_, bmm_corrections_, profile_, heads_, rows, n, k, product_bytes_);
}

KernelCost MlaCosts::absorbed(double rows) const {
  KernelCost cost = product(rows, latent_, nope_);
  cost.seconds = into_latent_(rows, cost.seconds);
  KernelCost back = product(rows, v_dim_, latent_);
  back.seconds = out_of_latent_(rows, back.seconds);
  cost += back;
  return cost;
}

KernelCost MlaCosts::widening(const OperatorCosts& costs) const {
  KernelCost cost;
  if (!widens_) return cost;
  for (const double elements : {heads_ * nope_ * latent_, heads_ * latent_ * v_dim_}) {
    cost += costs.elementwise(elements * (1 + kElement));  // fp8 to 16 bit
    cost += costs.elementwise(elements * 2 * kElement);    // times its scale
  }
  return cost;
}

// Beside SGLang's own kernels there are PyTorch's: q and k put together, the new latent scattered into its
// page, lengths cast (flashmla_backend.py, forward_absorb_core of deepseek_v2.py). What a layer of a real
// server of deepseek-v2-lite with flashmla takes beyond all that is priced, at 1 and at 16 requests (SGLang
// 0.5.12, H200).
constexpr double kTorchKernels = 6e-6;  // seconds

KernelCost MlaCosts::joining(const OperatorCosts& costs, double rows) const {
  const double width = 2 * (latent_ + rope_) * kElement;  // read and written
  KernelCost cost = costs.elementwise(rows * heads_ * width);
  cost += costs.elementwise(rows * width);
  cost.seconds += kTorchKernels;
  return cost;
}

KernelCost MlaCosts::expanded(const OperatorCosts& costs, double rows, double fetched, double chunks,
                              double kv_bytes) const {
  const auto keys = [&](double tokens) {  // two parts read, one key written
    return costs.elementwise(tokens * heads_ * (2 * nope_ + rope_) * kElement + tokens * rope_ * kElement);
  };
  KernelCost cost = keys(rows);
  if (fetched == 0 || chunks == 0) return cost;
  const double each = fetched / chunks;
  KernelCost turn = costs.elementwise(each * (latent_ + rope_) * (kv_bytes + kElement));
  turn += costs.gemm(each, static_cast<std::uint64_t>(heads_ * (nope_ + v_dim_)),
                     static_cast<std::uint64_t>(latent_), kv_b_);
  turn += keys(each);
  for (double i = 0; i < chunks; ++i) cost += turn;
  return cost;
}

}  // namespace tpsim::rank
