// What the kernels of one gated delta-net layer cost on one GPU, its three projections left to OperatorCosts.
//
// Decode reads and writes the state of every request once. Prefill works in chunks of 64 tokens: within a
// chunk matrix products, between chunks a walk over the states, one after another. Kernels, their bytes and
// their arithmetic: SGLang 0.5.12, layers/attention/linear/gdn_backend.py with --linear-attn-backend triton
// and layers/attention/fla/chunk*.py. Nothing of it was measured: efficiencies are those of other Triton
// kernels.
#pragma once

#include <cstdint>
#include <span>

#include "proto/hardware.pb.h"
#include "rank/model/layers.h"
#include "rank/model/op_cost.h"

namespace tpsim::rank {

class GatedDeltaCosts {
 public:
  explicit GatedDeltaCosts(const proto::HardwareProfile& profile);

  // One layer, `requests` of one token each (of a captured graph: its batch size).
  KernelCost decode(const LinearLayers& layers, double requests) const;
  // One layer, requests of these many new tokens.
  KernelCost extend(const LinearLayers& layers, std::span<const std::uint32_t> lens) const;

 private:
  KernelCost kernel(double flops, double bytes) const;

  double flops_, bandwidth_, multiprocessors_;
};

}  // namespace tpsim::rank
