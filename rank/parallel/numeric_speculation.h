// Speculative decoding where passes are computed: who drafts, and what is kept of a verified pass.
//
// Every process drafts and verifies for itself and comes to the same: drafts follow from the texts, which all
// know, and from logits, which are the same everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rank/numeric/ngram_drafter.h"
#include "rank/numeric/token_batch.h"
#include "rank/parallel/drafting.h"
#include "rank/parallel/model_drafter.h"

namespace tpsim::rank {

class NumericSpeculation {
 public:
  // `draft`: the draft model's passes, or null: n-grams.
  NumericSpeculation(const DraftingConfig& config, std::unique_ptr<TokenForward> draft);

  bool enabled() const { return config_.num_draft_tokens > 0; }
  bool chains() const { return config_.topk == 1; }
  // Of the draft model's passes; zeros where there is none.
  NumericTimes times() const { return drafter_ ? drafter_->times() : NumericTimes{}; }

  // A pass of the target that extended, and the token behind each request's last.
  void extend(const TokenBatch& batch, std::span<const std::uint32_t> next_tokens,
              const TokenForward& target);
  // Fills the trees of `requests`, of which `last_token` holds what was sampled last, by row.
  void draft(std::vector<Verified>& requests, std::span<const std::uint32_t> last_token);
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
