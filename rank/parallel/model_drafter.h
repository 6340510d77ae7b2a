// Drafts by a model: a second one (STANDALONE) or a head that reads the target's hidden states (EAGLE,
// EAGLE3, NEXTN).
//
// It is one token ahead of the target: where the target has the token of position p, it has the one behind
// it, and beside it the target's hidden state at p. So what it computes for the last token that is confirmed
// guesses at the token after the one that was sampled last. A pass that extends it therefore gives the first
// guesses of the next step already, and a step has num_steps - 1 more passes.
//
// Each of topk branches keeps the keys and values of its passes in pages of its own. A branch's earlier
// drafts are those that stood in its place, be they its ancestors or not, as in SGLang: only hidden states
// follow the path.
//
// Source: SGLang 0.5.23 speculative/eagle_worker_v2.py (draft_forward, _draft_extend_for_prefill,
// _draft_extend_for_decode), standalone_worker_v2.py, eagle_worker_common.py (prepare_for_draft).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rank/numeric/draft_beams.h"
#include "rank/numeric/token_batch.h"
#include "rank/parallel/drafting.h"

namespace tpsim::rank {

class ModelDrafter {
 public:
  // `draft` has scratch_pages(config) pages more than the pool.
  ModelDrafter(const DraftingConfig& config, std::unique_ptr<TokenForward> draft);

  // Pages behind the pool's, in which branches grow; 0 for chains, which grow behind their request.
  static std::uint32_t scratch_pages(const DraftingConfig& config);

  // A pass of the target that extended: the token behind each request's last, and the target's hidden states
  // (of every token; empty where the draft model reads none).
  void extend(const TokenBatch& batch, std::span<const std::uint32_t> next_tokens,
              std::span<const float> hidden);
  // Grows the trees of `requests`, each of which has its root.
  void draft(std::span<Verified> requests);
  // The paths are known. `hidden`: of every node that was verified, one request's after the other.
  void follow(std::span<const Verified> requests, std::span<const float> hidden);

  const NumericTimes& times() const { return draft_->times(); }

 private:
  // Requests that draft together: more would need more scratch pages.
  static constexpr std::uint32_t kTogether = 32;

  // What the pass behind the last confirmed token said.
  struct Seed {
    std::vector<Guess> guesses;  // [topk]
    std::vector<float> hidden;
  };

  static std::uint32_t pages_of_branch(const DraftingConfig& config);
  void keep_seeds(const TokenBatch& batch, std::span<const float> logits);
  void lay_branches(std::span<const Verified> requests);
  void grow(std::span<const Verified> requests, std::uint32_t step);
  std::span<const float> logits_of(std::span<const float> logits, std::size_t row) const {
    return logits.subspan(row * config_.draft_vocab_size, config_.draft_vocab_size);
  }

  const DraftingConfig config_;
  std::unique_ptr<TokenForward> draft_;
  std::vector<Seed> seeds_;  // per row

  // Of a pass.
  std::vector<std::uint32_t> rows_, q_lens_, prefix_lens_, seq_lens_, tokens_;
  std::vector<std::span<const std::uint32_t>> tables_;
  std::vector<float> hidden_;
  std::vector<std::vector<std::uint32_t>> branches_;  // page tables
  std::vector<DraftBeams> beams_;
  std::vector<Guess> guesses_;
};

}  // namespace tpsim::rank
