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

// Shares of the device's rates that kernels of a scan reach: of its bandwidth, and of its dense 16-bit rate.
struct ScanShares {
  double passing;                // the walk over chunks' states, by its bytes
  double within, state, output;  // by arithmetic: queries by keys, states that chunks leave, outputs of both
};
constexpr ScanShares kLightningShares = {kBytesShare, kArithmeticShare, kArithmeticShare, kArithmeticShare};
// A server of nemotron-3-nano-30b-a3b, profiled (SGLang 0.5.12, H200; 8,000 tokens, alone or as eight
// requests: 0.43, 0.13, 0.89 and 0.76 ms a layer).
constexpr ScanShares kMamba2Shares = {0.13, 0.016, 0.0096, 0.0224};
// Tuned tiles: chunks of 8,192 tokens by granite-4.0-h-small take what they take with these, as those of
// lightning attention assumed (SGLang 0.5.23, H200, four loads).
constexpr ScanShares kTunedShares = kLightningShares;
constexpr double kConvShare = 0.5;  // of the bandwidth, there
// The norm of the gated output in groups (Mixer2RMSNormGated.forward_native), there ten of PyTorch's kernels
// in fp32: seconds of one, and elements that all of them move for one of the output.
constexpr std::uint32_t kTorchKernels = 10;
constexpr double kTorchStart = 1.3e-6, kTorchElements = 35;

}  // namespace

StateSpaceCosts::StateSpaceCosts(const proto::HardwareProfile& profile)
    : flops_(profile.dense_flops_bf16()), bandwidth_(profile.memory_bandwidth()) {}

KernelCost StateSpaceCosts::moving(double bytes, double flops, double bytes_share, double flops_share) const {
  return {kStart + std::max(bytes / (bandwidth_ * bytes_share), flops / (flops_ * flops_share)), flops, bytes,
          1};
}

KernelCost StateSpaceCosts::moving(double bytes, double flops) const {
  return moving(bytes, flops, kBytesShare, kArithmeticShare);
}

KernelCost StateSpaceCosts::gated_norm(const LinearLayers& layers, double tokens) const {
  const double values = double(layers.num_v_heads) * layers.v_dim;
  if (layers.kind != LinearKind::kMamba2 || layers.num_k_heads == 1)
    return moving(tokens * 3 * values * kElement);
  const double bytes = tokens * kTorchElements * values * kElement;
  return {kTorchKernels * kTorchStart + bytes / (bandwidth_ * kBytesShare), 0, bytes, kTorchKernels};
}

KernelCost StateSpaceCosts::around(const LinearLayers& layers, double tokens, double requests) const {
  const auto channels = static_cast<double>(layers.conv_dim());
  const double values = double(layers.num_v_heads) * layers.v_dim;
  KernelCost cost = gated_norm(layers, tokens);
  if (layers.conv_kernel > 1) {
    cost += moving(tokens * 2 * channels * kElement + requests * 2 * double(layers.conv_bytes()),
                   2 * tokens * channels * layers.conv_kernel, kConvShare, kArithmeticShare);
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
  const bool untuned = layers.kind == LinearKind::kMamba2 && !layers.tuned;
  const ScanShares& shares = untuned ? kMamba2Shares : kTunedShares;
  cost += moving(tokens * heads * 2 * kFp32);  // steps added up within chunks
  cost += moving(tokens * 2 * groups * keys * kElement + within * kFp32, 2 * within * keys, kBytesShare,
                 shares.within);
  cost += moving(inputs + left, 2 * chunks * heads * chunk * keys * values, kBytesShare, shares.state);
  cost +=
      moving(2 * left + requests * 2 * double(layers.temporal_bytes()), 0, shares.passing, kArithmeticShare);
  cost += moving(inputs + left + within * kFp32 + tokens * heads * values * kElement,
                 2 * chunks * heads * (chunk * keys * values + chunk * chunk * values), kBytesShare,
                 shares.output);
  return cost;
}

}  // namespace tpsim::rank
