// A step of speculative decoding on one rank: the draft model's passes, the target's pass that verifies, and
// the pass that extends the draft model after what was computed.
//
// Source: SGLang 0.5.23 speculative/eagle_worker_v2.py (draft_forward: num_steps - 1 passes, for the first
// guesses come out of the extend; _draft_extend_for_decode: as many tokens of each request as were verified;
// _draft_extend_for_prefill) and ngram_worker.py, 0.5.12 eagle_worker.py and ngram_worker.py. Each of the
// three is one captured graph where decode is captured (eagle_draft_cuda_graph_runner.py,
// eagle_draft_extend_cuda_graph_runner.py), but for extends that the release does not capture. Behind every
// pass of the draft model guesses are chosen from its logits (softmax and top-k, fast_topk of spec_utils.py),
// and after the last one the tree is built (build_tree_kernel_efficient of eagle_utils.py).
//
// Spec v2 waits for nothing on the host until the step is verified, so that kernels of an extend that is not
// captured are issued while the target model verifies: a step takes as long as the longer of the device and
// the host. The same holds for a prefill of both models.
//
// With data-parallel attention all ranks run all of these passes, those without a request of their own idle
// ones, padded to what the others have (EagleDraftWorker.draft, _draft_forward_idle). An EAGLE3 head serves
// its data-parallel rank alone (DraftTPExecution.SINGLE_GROUP of speculative/draft_parallel.py).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/hardware.pb.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/draft_model.h"
#include "rank/llm/modeled_forward.h"
#include "rank/llm/rank_model.h"

namespace tpsim::rank {

// What the host does for a step besides issuing kernels one by one: for n-grams the look-up of drafts in the
// texts so far and the masks that it makes of them request by request; preparing the passes; taking results.
struct DraftHost {
  double seconds = 0;
  double seconds_of_request = 0;
  bool overlaps = false;  // the device computes meanwhile (spec v2); else it waits
};

struct SpeculationShape {
  std::uint32_t num_steps = 1;
  std::uint32_t topk = 1;
  std::uint32_t num_draft_tokens = 1;
  bool tree_mask = false;       // what is verified is no chain
  bool extend_captured = true;  // the draft model's extend after a captured verification
  bool drafts_alone = false;    // of data-parallel ranks, each has a draft model of its own
  DraftHost host = {};
};

class SpeculativeForward : public RankModel {
 public:
  // `draft` and `draft_forward` are null together: n-grams need no model. `draft_shard`: of the draft model.
  SpeculativeForward(std::unique_ptr<ModeledForward> target, std::unique_ptr<DraftModel> draft,
                     std::unique_ptr<ModeledForward> draft_forward, const Shard& draft_shard,
                     const proto::HardwareProfile& profile, const SpeculationShape& shape);

  StepCost forward(const attention::ForwardMetadata& metadata) override;
  void save(StateWriter& state) const override;
  void load(StateReader& state) override;

 private:
  StepCost draft_tokens(const attention::ForwardMetadata& verify);
  // What all ranks compute in a pass of the draft model, where each request of `verify` has `tokens`, and
  // `logits` of them are wanted.
  void set_global(const attention::ForwardMetadata& verify, std::uint32_t tokens, std::uint32_t logits,
                  attention::ForwardMetadata& metadata);
  StepCost draft_pass(const attention::ForwardMetadata& metadata, bool extends, std::uint32_t rows);
  // Choosing guesses from `rows` rows of the draft model's logits, and building the tree.
  void choose(double rows, StepCost& step) const;
  void build_tree(StepCost& step) const;
  // The products in front of a head's layer that its ModelConfig does not list.
  StepCost head_products(bool extends, std::uint32_t rows) const;

  std::unique_ptr<ModeledForward> target_;
  std::unique_ptr<DraftModel> draft_;
  std::unique_ptr<ModeledForward> draft_forward_;
  Shard draft_shard_;
  OperatorCosts costs_;
  SpeculationShape shape_;
  double graph_replay_;
  std::vector<std::uint32_t> lens_;
  std::vector<std::uint32_t> global_num_tokens_, global_num_tokens_for_logprob_;
};

}  // namespace tpsim::rank
