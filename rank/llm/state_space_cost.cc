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

// Mamba 2's kernels by themselves: shares of the dense 16-bit rate and of the bandwidth that those of a scan
// reached in a server of nemotron-3-nano-30b-a3b (SGLang 0.5.12, H200; 8,000 tokens, alone or as eight
// requests: 0.89, 0.43, 0.13 and 0.76 ms a layer).
constexpr double kStateShare = 0.0096, kWithinShare = 0.016, kOutputShare = 0.0224, kPassingShare = 0.13;
constexpr double kConvShare = 0.5;
// The norm of the gated output in groups (Mixer2RMSNormGated.forward_native), there ten of PyTorch's kernels
// in fp32: seconds of one, and elements that all of them move for one of the output.
constexpr std::uint32_t kTorchKernels = 10;
constexpr double kTorchStart = 1.3e-6, kTorchElements = 35;

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
  if (layers.kind == LinearKind::kMamba2 && layers.num_k_heads > 1) {
    const double bytes = tokens * kTorchElements * values * kElement;
    cost = {kTorchKernels * kTorchStart + bytes / (bandwidth_ * kBytesShare), 0, bytes, kTorchKernels};
  }
  if (layers.conv_kernel > 1) {
    const double bytes = tokens * 2 * channels * kElement + requests * 2 * double(layers.conv_bytes());
    cost +=
        {kStart + bytes / (bandwidth_ * kConvShare), 2 * tokens * channels * layers.conv_kernel, bytes, 1};
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
  if (layers.kind == LinearKind::kMamba2) {
    const double by_state = 2 * chunks * heads * chunk * keys * values;
    const double moved = 2 * left + requests * 2 * double(layers.temporal_bytes());
    const auto kernel = [&](double flops, double share, double bytes) {
      cost += {kStart + flops / (flops_ * share), flops, bytes, 1};
    };
    cost += moving(tokens * heads * 2 * kFp32);  // steps added up within chunks
    kernel(by_state, kStateShare, inputs + left);
    cost += {kStart + moved / (bandwidth_ * kPassingShare), 0, moved, 1};
    kernel(2 * within * keys, kWithinShare, tokens * 2 * groups * keys * kElement + within * kFp32);
    kernel(by_state + 2 * chunks * heads * chunk * chunk * values, kOutputShare,
           inputs + left + within * kFp32 + tokens * heads * values * kElement);
    return cost;
  }
  cost += moving(tokens * heads * 2 * kFp32);  // steps added up within chunks
  cost += moving(tokens * 2 * groups * keys * kElement + within * kFp32, 2 * within * keys);
  cost += moving(inputs + left, 2 * chunks * heads * chunk * keys * values);
  cost += moving(2 * left + requests * 2 * double(layers.temporal_bytes()));
  cost += moving(inputs + left + within * kFp32 + tokens * heads * values * kElement,
                 2 * chunks * heads * (chunk * keys * values + chunk * chunk * values));
  return cost;
}

}  // namespace tpsim::rank
