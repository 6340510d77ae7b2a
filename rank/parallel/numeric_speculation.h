// Speculative decoding where passes are computed: who drafts, and what is kept of a verified pass.
//
// Every process drafts and verifies for itself and comes to the same: drafts follow from the texts, which all
// know, and from logits, which are the same everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcache/page_run.h"
#include "rank/numeric/draft_tree.h"
#include "rank/numeric/ngram_drafter.h"
#include "rank/numeric/token_batch.h"
#include "rank/parallel/rank_state.h"

namespace tpsim::rank {

struct DraftingConfig {
  std::uint32_t num_draft_tokens = 0;  // 0: no speculation
  std::uint32_t num_steps = 0;         // of a draft model
  std::uint32_t max_breadth = 1;       // of n-grams
  std::uint32_t page_size = 1;
  std::uint32_t num_pages = 0;
  std::uint32_t vocab_size = 0;
};

// One request of a pass that verifies.
struct Verified {
  std::uint32_t row = 0;
  std::uint32_t prefix_len = 0;  // tokens whose KV is stored
  std::span<const std::uint32_t> page_table;
  DraftTree tree;
  std::vector<std::uint32_t> path;  // of the tree, accepted
};

class NumericSpeculation {
 public:
  // `draft`: the draft model's passes, or null: n-grams.
  NumericSpeculation(const DraftingConfig& config, std::unique_ptr<TokenForward> draft);

  bool enabled() const { return config_.num_draft_tokens > 0; }
  bool chains() const { return draft_ != nullptr || config_.max_breadth == 1; }

  // The tokens of a pass that extends, by which later drafts know the texts; the draft model extends, too.
  void extend(const TokenBatch& batch);
  // Fills the trees of `requests`, of which `last_token` holds what was sampled last, by row.
  void draft(std::vector<Verified>& requests, std::span<const std::uint32_t> last_token);
  // The paths are known: what is kept moves together in the target's store, and the draft model follows.
  void keep(std::vector<Verified>& requests, TokenForward& target);

 private:
  std::uint32_t slot(const Verified& request, std::uint32_t position) const {
    return request.page_table[position / config_.page_size] * config_.page_size +
           position % config_.page_size;
  }
  void draft_chains(std::vector<Verified>& requests);
  std::span<const float> draft_pass(std::vector<Verified>& requests, proto::ForwardMode mode);

  DraftingConfig config_;
  std::unique_ptr<TokenForward> draft_;
  std::vector<std::uint32_t> token_of_slot_;  // of the whole pool: the text that a page holds
  // Of a pass of the draft model.
  std::vector<std::uint32_t> rows_, q_lens_, prefix_lens_, tokens_, seq_lens_, text_;
  std::vector<std::span<const std::uint32_t>> tables_;
};

}  // namespace tpsim::rank
