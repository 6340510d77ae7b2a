#include "rank/parallel/numeric_speculation.h"

#include <cstddef>
#include <utility>

namespace tpsim::rank {

NumericSpeculation::NumericSpeculation(const DraftingConfig& config, std::unique_ptr<TokenForward> draft)
    : config_(config) {
  if (draft != nullptr) {
    drafter_.emplace(config, std::move(draft));
  } else if (enabled()) {
    token_of_slot_.resize(std::size_t{config.num_pages} * config.page_size, 0);
  }
}

void NumericSpeculation::extend(const TokenBatch& batch, std::span<const std::uint32_t> next_tokens,
                                const TokenForward& target) {
  if (drafter_) {
    drafter_->extend(batch, next_tokens, target.hidden());
    return;
  }
  std::size_t token = 0;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    for (std::uint32_t k = 0; k < batch.q_lens[i]; ++k, ++token)
      token_of_slot_[slot(batch.page_tables[i], batch.prefix_lens[i] + k)] = batch.token_ids[token];
  }
}

void NumericSpeculation::draft(std::vector<Verified>& requests, std::span<const std::uint32_t> last_token) {
  for (Verified& request : requests) {
    request.tree.tokens.assign(1, last_token[request.row]);
    request.tree.parents.assign(1, 0);
  }
  if (drafter_) {
    drafter_->draft(requests);
    return;
  }
  const NgramOptions options = {.num_draft_tokens = config_.num_draft_tokens, .max_breadth = config_.topk};
  for (Verified& request : requests) {
    text_.clear();
    for (std::uint32_t position = 0; position < request.prefix_len; ++position)
      text_.push_back(token_of_slot_[slot(request.page_table, position)]);
    text_.push_back(request.tree.tokens.front());
    request.tree = draft_ngrams(text_, options);
  }
}

void NumericSpeculation::keep(const std::vector<Verified>& requests, TokenForward& target) {
  std::vector<std::uint32_t> from, to;
  for (const Verified& request : requests) {
    for (std::uint32_t k = 0; k < request.path.size(); ++k) {
      const std::uint32_t node = request.path[k];
      const std::uint32_t kept = slot(request.page_table, request.prefix_len + k);
      if (!drafter_) token_of_slot_[kept] = request.tree.tokens[node];
      if (node == k) continue;
      from.push_back(slot(request.page_table, request.prefix_len + node));
      to.push_back(kept);
    }
  }
  if (!from.empty()) target.move_tokens(/*dp_rank=*/0, from, to);
  if (drafter_) drafter_->follow(requests, target.hidden());
}

}  // namespace tpsim::rank
