// Drafts by a model: a second one (STANDALONE) or a head that reads the target's hidden states (EAGLE,
// EAGLE3, NEXTN).
//
// It is one token ahead of the target: where the target has the token of position p, it has the one after
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
#include <optional>
#include <span>
#include <vector>

#include "rank/numeric/sampler.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// The numbers of speculative decoding where passes are computed.
struct DraftingConfig {
  std::uint32_t num_draft_tokens = 0;  // 0: no speculation
  std::uint32_t num_steps = 0;         // of a draft model, the pass that extends it included
  std::uint32_t topk = 1;              // guesses after a token; of n-grams the breadth
  std::uint32_t page_size = 1;
  std::uint32_t num_pages = 0;
  std::uint32_t draft_vocab_size = 0;  // of a draft model
  // The target's token of each entry of the draft's vocabulary; empty: the same.
  std::vector<std::uint32_t> token_of;
};

// One request of a pass that verifies.
struct Verified {
  std::uint32_t row = 0;
  std::uint32_t prefix_len = 0;  // tokens whose KV is stored
  std::span<const std::uint32_t> page_table;
  DraftTree tree;
  std::vector<std::uint32_t> path;     // of the tree, accepted
  std::vector<std::uint32_t> sampled;  // after each node of the path
};

class ModelDrafter {
 public:
  // `draft` has scratch_pages(config) pages more than the pool.
  ModelDrafter(const DraftingConfig& config, std::unique_ptr<TokenForward> draft);

  // Pages after the pool's, in which branches grow; 0 for chains, which grow after their request.
  static std::uint32_t scratch_pages(const DraftingConfig& config);

  // A pass of the target that extended: the token after each request's last, and the target's hidden states
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

  // What the pass after the last confirmed token said.
  struct Seed {
    std::vector<Guess> guesses;  // [topk]
    std::vector<float> hidden;
  };

  static std::uint32_t pages_of_branch(const DraftingConfig& config);
  void keep_seeds(const TokenBatch& batch, std::span<const float> logits);
  void lay_branches(std::span<const Verified> requests);
  void grow(std::span<const Verified> requests, std::uint32_t step);
  // The pass that the members below describe, but for its metadata; and its requests taken out.
  TokenBatch pass() const;
  void clear_pass();
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

// Speculative decoding where passes are computed: who drafts, and what is kept of a verified pass.
//
// Every process drafts and verifies for itself and comes to the same: drafts follow from the texts, which all
// know, and from logits, which are the same everywhere.
class NumericSpeculation {
 public:
  // `draft`: the draft model's passes, or null: n-grams.
  NumericSpeculation(const DraftingConfig& config, std::unique_ptr<TokenForward> draft);

  bool enabled() const { return config_.num_draft_tokens > 0; }
  bool chains() const { return config_.topk == 1; }
  // Of the draft model's passes; zeros where there is none.
  NumericTimes times() const { return drafter_ ? drafter_->times() : NumericTimes{}; }

  // A pass of the target that extended, and the token after each request's last.
  void extend(const TokenBatch& batch, std::span<const std::uint32_t> next_tokens,
              const TokenForward& target);
  // Fills the trees of `requests`, of which `last_token` holds what was sampled last, by row.
  void draft(std::vector<Verified>& requests, std::span<const std::uint32_t> last_token);
  // As TokenForward::copy_pages().
  void copy_pages(std::span<const std::uint32_t> from, std::span<const std::uint32_t> to);
  // The paths are known: what is kept moves together in the target's store, and the draft model follows.
  void keep(const std::vector<Verified>& requests, TokenForward& target);

 private:
  std::uint32_t slot(std::span<const std::uint32_t> page_table, std::uint32_t position) const {
    return page_table[position / config_.page_size] * config_.page_size + position % config_.page_size;
  }

  const DraftingConfig config_;
  std::optional<ModelDrafter> drafter_;
  std::vector<std::uint32_t> token_of_slot_;  // n-grams: of the whole pool, the text that a page holds
  std::vector<std::uint32_t> text_;
};

}  // namespace tpsim::rank
