// What the kernels of gated delta-nets (Qwen3-Next, Qwen3.5) and of Kimi delta attention cost on one GPU,
// those that were measured alone: SGLang's of Triton, layers/attention/fla and mamba/causal_conv1d_triton.py
// of releases 0.5.14 and 0.5.16.
//
// Convolutions, decode and verification move bytes: states in fp32, which they read and write, and what goes
// in and out. A prefill works in chunks of 64 tokens: products within each, and a walk over the states from
// one chunk of a request to the next. Classes "gdn.…" and "kda.…" (kernels of the name, below); on GPUs
// without them the shares of an H100's rates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "attention/backend.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"

namespace tpsim::rank {

enum class DeltaKernel : std::uint8_t {
  kGdnConvExtend,
  kGdnConvDecode,
  kGdnExtend,
  kGdnDecode,
  kKdaConvExtend,  // of queries, keys and values, one after the other
  kKdaConvDecode,
  kKdaExtend,
  kKdaDecode,
  // Several tokens of each request, each with a state behind it: KDA's and gated delta-nets', one kernel
  // (fused_sigmoid_gating_delta_rule_update).
  kVerify,
};
inline constexpr std::array<std::string_view, 9> kDeltaClasses = {
    "gdn.conv.extend", "gdn.conv.decode", "gdn.extend", "gdn.decode", "kda.conv.extend",
    "kda.conv.decode", "kda.extend",      "kda.decode", "kda.verify"};
inline std::string_view class_of(DeltaKernel kernel) {
  return kDeltaClasses[static_cast<std::size_t>(kernel)];
}

// What a kernel of one layer works on.
struct DeltaWork {
  double requests = 1;
  double tokens = 1;   // of all
  double chunks = 1;   // of all
  double longest = 1;  // chunks of the longest request
  double key_heads = 1, heads = 1, k_dim = 128, v_dim = 128;
  double channels = 1;     // of the convolution
  double conv_kernel = 4;  // tokens
  double state_bytes = 4;  // of an element
};

// In the order of kDeltaFeatures.
using DeltaFeatures = std::array<double, std::size(kDeltaFeatures)>;
DeltaFeatures features_of(const DeltaWork& work);

inline constexpr double kDeltaChunk = 64;  // tokens (FLA's CHUNK_SIZE)

class DeltaKernels {
 public:
  explicit DeltaKernels(const proto::HardwareProfile& profile);

  // `hot`: what it reads lies in the L2 where that holds it. Prefills find there what the kernels before them
  // wrote; of states a benchmark's loop does, and no served layer.
  attention::KernelCost cost(DeltaKernel kernel, const DeltaWork& work, bool hot) const;

 private:
  struct Class {
    OperatorCoefficients coefficients;
    Corrections corrections;
  };
  attention::KernelCost physics(DeltaKernel kernel, const DeltaWork& work, bool hot) const;

  std::array<Class, kDeltaClasses.size()> classes_;
  double flops_, bandwidth_, l2_;
};

}  // namespace tpsim::rank
