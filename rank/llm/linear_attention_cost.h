// What the kernels of one gated delta-net layer cost on one GPU, its three projections left to OperatorCosts.
//
// Kernels that were measured alone on eight GPUs are DeltaKernels' (rank/cost/delta_kernels.h): convolutions,
// the chunks of a prefill, the rule in decode and in passes that verify drafts. The others move bytes:
// splits, gates, copies and moves of states as an H200's, the gated norm as any elementwise kernel.
//  - triton: layers/attention/linear/gdn_backend.py with --linear-attn-backend triton and
//    layers/attention/fla/chunk*.py; KDA (Kimi Linear) layers/attention/linear/kda_backend.py, whose chunks
//    make their gates themselves.
//  - cutedsl: decode in one kernel, as triton's; prefill on SM 10.x
//  (kernels/ops/attention/linear/gdn_blackwell).
//  - flashinfer: decode on Hopper on a copy of the states, which is copied back, on newer ones in the pool;
//    prefill in one kernel that walks over the chunks of a head with all that is within them
//    (layers/attention/linear/kernels/gdn_flashinfer.py of 0.5.23, FlashInfer 0.6.14 gdn_prefill.py).
// Those of the last two were not measured. A short convolution (LFM2) is priced by convolutions as an H200's.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "proto/hardware.pb.h"
#include "rank/cost/delta_kernels.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/layers.h"
#include "rank/llm/state_space_cost.h"

namespace tpsim::rank {

// --linear-attn-backend.
enum class LinearAttnBackend : std::uint8_t { kTriton, kCuteDsl, kFlashInfer };
std::string to_string(LinearAttnBackend backend);
// What the price of layers other than delta-nets and KDA rests on, for reports.
std::string source_of_price(LinearKind kind);
struct LinearAttnBackends {
  LinearAttnBackend decode = LinearAttnBackend::kTriton;
  LinearAttnBackend prefill = LinearAttnBackend::kTriton;
};

// What a pass does with the pool of states besides: copies between slots and slots cleared before it, and
// snapshots taken in it, each in all layers.
struct StateMoves {
  std::uint32_t copies = 0;
  std::uint32_t clears = 0;
  std::uint32_t snapshots = 0;
  bool may_snapshot = false;  // a captured decode pass launches the kernel for it whether it takes one or not
};

class GatedDeltaCosts {
 public:
  // A kernel's start in seconds, and the share of the device's bandwidth that it moves its bytes with.
  struct Moving {
    double fixed, share;
  };

  explicit GatedDeltaCosts(const proto::HardwareProfile& profile, LinearAttnBackends backends = {});

  // One layer, `requests` of one token each (of a captured graph: its batch size).
  KernelCost decode(const LinearLayers& layers, double requests) const;
  // One layer, requests of these many new tokens.
  KernelCost extend(const LinearLayers& layers, std::span<const std::uint32_t> lens) const;
  // One layer of a pass that verifies `drafts` tokens of each of `requests`: a state is read once and written
  // after every one of them, beside the pool (MambaPool.SpeculativeState).
  KernelCost verify(const LinearLayers& layers, double requests, std::uint32_t drafts) const;
  // All layers, after it: the states of what was accepted become those of the requests, and `snapshots` of
  // them the tree's (scatter_mamba_states_after_mtp_verify); `may_snapshot`: that launches whether or not.
  KernelCost commit(const LinearLayers& layers, double requests, const StateMoves& moves) const;
  // All layers. Copies and clears are a few kernels each (MambaPool.copy_from, clear_slots); snapshots one at
  // the end of a decode pass, and two of every layer of an extend.
  KernelCost moves(const LinearLayers& layers, const StateMoves& moves, bool decodes) const;

 private:
  KernelCost short_conv(const LinearLayers& layers, double tokens, double requests, const Moving& conv) const;
  KernelCost moving(const Moving& kernel, double bytes, std::uint32_t launches = 1, double flops = 0) const;
  KernelCost chunks_of_flashinfer(const DeltaWork& work) const;

  LinearAttnBackends backends_;
  StateSpaceCosts state_space_;
  DeltaKernels kernels_;
  bool state_pool_;  // FlashInfer's kernels work on the pool itself
  double bandwidth_, multiprocessors_;
};

}  // namespace tpsim::rank
