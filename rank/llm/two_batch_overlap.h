// Two-batch overlap (--enable-two-batch-overlap): a pass is cut in two halves that take turns on the GPU, so
// that one computes while the other's tokens travel to their experts or back. SGLang 0.5's batch_overlap:
// two_batch_overlap.py (where a batch is cut) and operations_strategy.py (the stages of a layer and who is
// ahead).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rank/llm/modeled_forward.h"

namespace tpsim::rank {

// Seconds of one layer with experts, of one half.
struct HalfLayer {
  double prepare = 0;                     // before attention: its products
  double core = 0;                        // attention and what follows up to the choice of experts
  double shared = 0, experts = 0;         // shared and routed experts
  double dispatch = 0, combine = 0;       // exchange: in flight …
  double dispatching = 0, combining = 0;  // … and on the multiprocessors, half of it at either end
};

// Seconds of `layers` such layers, from the first half's first kernel to the second one's last. Kernels of
// both halves run one after the other, exchanges too. `decode`: in the order for decode, where the first half
// is two stages ahead, else in that for prefill.
double two_batch_seconds(const HalfLayer& a, const HalfLayer& b, std::uint32_t layers, bool decode);

// Where an extend of requests of `lens` new tokens is cut.
struct ExtendCut {
  std::size_t requests = 0;  // of the first half …
  std::uint32_t tokens = 0;  // … and its tokens; the second half begins with what the last of them has left
};
// REQUIRES: threshold is in [0, 0.5] (--tbo-token-distribution-threshold).
ExtendCut cut_extend(std::span<const std::uint32_t> lens, double threshold);

class TwoBatchForward : public RankModel {
 public:
  // REQUIRES: the model was made with Options::two_batches, and its tokens go to their experts
  // (ParallelLayout::a2a).
  TwoBatchForward(std::unique_ptr<ModeledForward> model, const proto::HardwareProfile& profile,
                  std::uint32_t expert_layers, double threshold);

  StepCost forward(const attention::ForwardMetadata& metadata) override;
  void save(StateWriter& state) const override { model_->save(state); }
  void load(StateReader& state) override { model_->load(state); }

 private:
  struct Half {
    attention::ForwardMetadata metadata;
    std::vector<std::uint32_t> prefix_lens, lens, seq_lens, global, logits;
  };
  // False: the pass is not cut.
  bool cut(const attention::ForwardMetadata& metadata);

  std::unique_ptr<ModeledForward> model_;
  std::uint32_t expert_layers_;
  double threshold_;
  double fewer_multiprocessors_;
  Half halves_[2];
};

}  // namespace tpsim::rank
