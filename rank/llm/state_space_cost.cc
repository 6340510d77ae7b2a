#include "rank/llm/state_space_cost.h"

#include <algorithm>
#include <cmath>

#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

constexpr double kStart = 3e-6;            // seconds of a kernel
constexpr double kBytesShare = 0.75;       // of the device's bandwidth
constexpr double kArithmeticShare = 0.15;  // of the dense 16-bit rate
constexpr double kFp32 = 4;                // bytes of an element of what chunks hand on

}  // namespace

StateSpaceCosts::StateSpaceCosts(const proto::HardwareProfile& profile)
    : flops_(profile.dense_flops_bf16()), bandwidth_(profile.memory_bandwidth()) {}

KernelCost StateSpaceCosts::moving(double bytes, double flops) const {
  return {kStart + std::max(bytes / (bandwidth_ * kBytesShare), flops / (flops_ * kArithmeticShare)), flops,
          bytes, 1};
}

KernelCost StateSpaceCosts::around(const LinearLayers& layers, double tokens, double requests) const {
  const auto channels = static_cast<double>(layers.conv_dim());
  const double values = double(layers.num_v_heads) * layers.v_dim;
  KernelCost cost = moving(tokens * 3 * values * kElement);
  if (layers.conv_kernel > 1) {
    cost += moving(tokens * 2 * channels * kElement + requests * 2 * double(layers.conv_bytes()),
                   2 * tokens * channels * layers.conv_kernel);
  } else {
    for (int i = 0; i < 3; ++i) cost += moving(tokens * 2 * (channels - values) * kElement);
  }
  return cost;
}

KernelCost StateSpaceCosts::step(const LinearLayers& layers, double requests, std::uint32_t tokens) const {
  const auto state = static_cast<double>(layers.temporal_bytes());
  const double all = requests * tokens;
  KernelCost cost = around(layers, all, requests);
  cost += moving(requests * (1.0 + tokens) * state +
                     all * (double(layers.conv_dim()) + double(layers.num_v_heads) * layers.v_dim) * kElement,
                 5 * all * state / layers.state_bytes);
  return cost;
}

KernelCost StateSpaceCosts::scan(const LinearLayers& layers, std::span<const std::uint32_t> lens) const {
  const double chunk = layers.chunk;
  double tokens = 0, chunks = 0;
  for (const std::uint32_t length : lens) {
    tokens += length;
    chunks += std::ceil(length / chunk);
  }
  const auto requests = static_cast<double>(lens.size());
  const double heads = layers.num_v_heads, groups = layers.num_k_heads;
  const double keys = layers.k_dim, values = layers.v_dim;
  const double inputs = tokens * double(layers.conv_dim()) * kElement;
  const double left = chunks * heads * keys * values * kFp32;  // states that chunks leave
  const double within = chunks * groups * chunk * chunk;       // queries by keys of chunks
  KernelCost cost = around(layers, tokens, requests);
  cost += moving(tokens * heads * 2 * kFp32);  // steps added up within chunks
  cost += moving(tokens * 2 * groups * keys * kElement + within * kFp32, 2 * within * keys);
  cost += moving(inputs + left, 2 * chunks * heads * chunk * keys * values);
  cost += moving(2 * left + requests * 2 * double(layers.temporal_bytes()));
  cost += moving(inputs + left + within * kFp32 + tokens * heads * values * kElement,
                 2 * chunks * heads * (chunk * keys * values + chunk * chunk * values));
  return cost;
}

}  // namespace tpsim::rank
