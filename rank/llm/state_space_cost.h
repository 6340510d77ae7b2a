// What the kernels of one layer of state-space duality cost on one GPU, its projections left to
// OperatorCosts: Mamba 2 (Nemotron-H) and lightning attention (Ling 2.5), whose states are keys times values
// that fade. Scans of Mamba 2 were profiled in a server; of the rest none was measured: bytes and arithmetic
// at the shares of a device's rates that the kernels of gated delta-nets reach on an H200
// (linear_attention_cost.cc).
//
// Decode reads and writes the state of every request once, in one kernel, after a convolution over the last
// tokens where there is one. Prefill works in chunks of LinearLayers::chunk tokens: queries by keys within a
// chunk, the state that each chunk leaves, a walk over those, and outputs of both.
//
// Source: SGLang 0.5.23, layers/attention/mamba/mamba.py and its Triton kernels (ssd_combined.py: five, and
// causal_conv1d), layers/attention/linear/lightning_backend.py (seg_la), models/bailing_moe_linear.py.
#pragma once

#include <cstdint>
#include <span>

#include "proto/hardware.pb.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/layers.h"

namespace tpsim::rank {

constexpr bool is_state_space(LinearKind kind) {
  return kind == LinearKind::kMamba2 || kind == LinearKind::kLightning;
}

class StateSpaceCosts {
 public:
  explicit StateSpaceCosts(const proto::HardwareProfile& profile);

  // `tokens` new ones of each of `requests`: 1 of a decode; of more, drafts to verify, a state is written
  // after each.
  KernelCost step(const LinearLayers& layers, double requests, std::uint32_t tokens) const;
  // Requests of these many new tokens.
  KernelCost scan(const LinearLayers& layers, std::span<const std::uint32_t> lens) const;

 private:
  // Of one kernel: the larger of its bytes and its arithmetic, at shares of the device's rates.
  KernelCost moving(double bytes, double flops, double bytes_share, double flops_share) const;
  KernelCost moving(double bytes, double flops = 0) const;
  KernelCost gated_norm(const LinearLayers& layers, double tokens) const;
  // Before and behind: convolution, or norms and rotation of queries and keys; the norm of the gated output.
  KernelCost around(const LinearLayers& layers, double tokens, double requests) const;

  double flops_, bandwidth_;
};

}  // namespace tpsim::rank
