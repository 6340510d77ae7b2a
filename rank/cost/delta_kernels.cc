#include "rank/cost/delta_kernels.h"

#include <algorithm>

#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

// Kernels that are priced as one: norms of q and k, decays added up, keys by keys with the system solved, w
// and u, the states of chunks, outputs (chunk_gated_delta_rule_fwd of SGLang 0.5.12's fla/chunk.py).
constexpr std::uint32_t kWalkLaunches = 7;

using attention::KernelCost;

// As they were fitted to an H100 (rank/catalogue/hardware/h100-sxm.json), without its corrections.
OperatorCoefficients shares_of_an_h100(DeltaKernel kernel) {
  OperatorCoefficients c;
  const auto shares = [&c](double memory, double fixed_seconds, double overlap) -> OperatorCoefficients& {
    c.memory = memory;
    c.fixed_seconds = fixed_seconds;
    c.overlap = overlap;
    return c;
  };
  switch (kernel) {
    case DeltaKernel::kGdnConvExtend:
      return shares(0.7, 2.7e-6, 0.87);
    case DeltaKernel::kGdnConvDecode:
      return shares(0.8, 1.6e-6, 0.98);
    case DeltaKernel::kGdnExtend:
      shares(0.57, 20.6e-6, 0.83).k_seconds = 1.62e-6;
      c.compute = 1;
      return c;
    case DeltaKernel::kGdnDecode:
      return shares(0.89, 4.1e-6, 0.71);
    case DeltaKernel::kKdaConvExtend:
      return shares(0.7, 8.9e-6, 0.8);
    case DeltaKernel::kKdaConvDecode:
      shares(0.71, 3.9e-6, 0.82).compute = 1.7e-3;
      return c;
    case DeltaKernel::kKdaExtend:
      shares(0.38, 21.1e-6, 0.23).k_seconds = 6.7e-6;
      c.compute = 0.56;
      return c;
    case DeltaKernel::kKdaDecode:
      return shares(0.81, 5.4e-6, 0.62);
    case DeltaKernel::kVerify:
      shares(0.84, 4.9e-6, 0.7).k_seconds = 1.74e-6;
      return c;
  }
  return c;
}

bool prefills(DeltaKernel kernel) {
  return kernel == DeltaKernel::kGdnConvExtend || kernel == DeltaKernel::kKdaConvExtend ||
         kernel == DeltaKernel::kGdnExtend || kernel == DeltaKernel::kKdaExtend;
}

// The share of its bytes that a kernel whose operands are so large finds in the L2, called again and again:
// packed decodes on L40S and RTX PRO 6000 of 0.7, 1.05 and 1.4 times the cache.
double share_in_l2(double bytes, double l2) {
  constexpr double kNone = 1.35, kWidth = 0.6;
  return l2 > 0 ? std::clamp((kNone - bytes / l2) / kWidth, 0.0, 1.0) : 0.0;
}

}  // namespace

DeltaFeatures features_of(const DeltaWork& w) {
  return {w.requests, w.tokens / w.requests, w.tokens, w.heads, w.heads / w.key_heads,
          w.channels, w.requests * w.heads};
}

DeltaKernels::DeltaKernels(const proto::HardwareProfile& profile)
    : flops_(profile.dense_flops_bf16()), bandwidth_(profile.memory_bandwidth()), l2_(profile.l2_bytes()) {
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const std::string_view name = kDeltaClasses[i];
    classes_[i] = {coefficients_of(profile, name, shares_of_an_h100(DeltaKernel(i))),
                   Corrections(find_efficiency(profile, name), feature_names(name))};
  }
}

KernelCost DeltaKernels::cost(DeltaKernel kernel, const DeltaWork& work, bool hot) const {
  KernelCost cost = physics(kernel, work, hot);
  cost.seconds *= classes_[static_cast<std::size_t>(kernel)].corrections.factor(features_of(work));
  return cost;
}

KernelCost DeltaKernels::physics(DeltaKernel kernel, const DeltaWork& w, bool hot) const {
  const OperatorCoefficients& c = classes_[static_cast<std::size_t>(kernel)].coefficients;
  const double state = w.heads * w.k_dim * w.v_dim * w.state_bytes;
  const double in = w.channels * kElement, out = w.heads * w.v_dim * kElement;  // of a token
  const auto together = [&c](double one, double other) {
    return std::max(one, other) + c.overlap * std::min(one, other);
  };
  const auto memory = [&](double bytes, double operands) {
    const double found = hot ? share_in_l2(operands, l2_) : 0;
    return bytes / (bandwidth_ * c.memory) * (1 - found + found / c.hot_memory);
  };
  KernelCost cost;
  const bool walks = kernel == DeltaKernel::kGdnExtend || kernel == DeltaKernel::kKdaExtend;
  cost.launches = kernel == DeltaKernel::kKdaConvExtend ? 3 : walks ? kWalkLaunches : 1;
  switch (kernel) {
    case DeltaKernel::kGdnConvExtend:
    case DeltaKernel::kGdnConvDecode:
    case DeltaKernel::kKdaConvExtend:
    case DeltaKernel::kKdaConvDecode: {
      const double window = w.requests * w.channels * (w.conv_kernel - 1) * kElement;
      cost.flops = 2 * w.tokens * w.channels * w.conv_kernel;
      if (prefills(kernel)) {
        cost.bytes = w.tokens * 2 * in + 2 * window;
        cost.seconds = together(c.fixed_seconds, memory(cost.bytes, cost.bytes / cost.launches));
        break;
      }
      // Windows move on where they are; those behind each of several tokens overlap in one, beside them.
      const double each = w.tokens / w.requests;
      const double written = window * (each + w.conv_kernel - 2) / (w.conv_kernel - 1);
      cost.bytes = w.tokens * 2 * in + window + written;
      const double operands = each > 1 ? cost.bytes : cost.bytes - window;
      cost.seconds = together(c.fixed_seconds,
                              std::max(memory(cost.bytes, operands), cost.flops / (flops_ * c.compute)));
      break;
    }
    case DeltaKernel::kGdnDecode:
    case DeltaKernel::kKdaDecode:
    case DeltaKernel::kVerify: {
      const double each = w.tokens / w.requests;
      const bool verifies = kernel == DeltaKernel::kVerify;
      const double states = w.requests * state * (1 + each);
      cost.bytes = states + w.tokens * (in + out);
      cost.flops = 7 * w.tokens * w.heads * w.k_dim * w.v_dim;
      const double start = c.fixed_seconds + c.k_seconds * (each - 1);
      cost.seconds = together(start, memory(cost.bytes, verifies ? states : states / 2));
      break;
    }
    case DeltaKernel::kGdnExtend:
    case DeltaKernel::kKdaExtend: {
      // Keys by keys and the triangular system solved; w and u; the walk; outputs from the states and from
      // within the chunk.
      const double within = kDeltaChunk * (4 * w.k_dim + kDeltaChunk + 2 * w.v_dim);
      const double across = 6 * w.k_dim * w.v_dim + 2 * kDeltaChunk * (w.k_dim + w.v_dim);
      cost.flops = w.chunks * w.heads * kDeltaChunk * (within + across);
      // Norms, w and u, values as they become; every chunk's state written and read.
      const double keys = w.channels - w.heads * w.v_dim;
      const double passes = (3 * keys + w.heads * (3 * w.k_dim + 7 * w.v_dim)) * kElement;
      cost.bytes =
          w.tokens * passes + w.chunks * w.heads * w.k_dim * w.v_dim * 2 * kElement + w.requests * 2 * state;
      const double at_once = cost.flops / (flops_ * c.compute) + memory(cost.bytes, cost.bytes / 2);
      cost.seconds = c.fixed_seconds + together(at_once, w.longest * c.k_seconds);
      break;
    }
  }
  return cost;
}

}  // namespace tpsim::rank
