#include "rank/parallel/numeric_speculation.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "rank/numeric/sampler.h"

namespace tpsim::rank {

NumericSpeculation::NumericSpeculation(const DraftingConfig& config, std::unique_ptr<TokenForward> draft)
    : config_(config), draft_(std::move(draft)) {
  if (enabled()) token_of_slot_.resize(std::size_t{config.num_pages} * config.page_size, 0);
}

void NumericSpeculation::extend(const TokenBatch& batch) {
  std::size_t token = 0;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    for (std::uint32_t k = 0; k < batch.q_lens[i]; ++k, ++token) {
      const std::uint32_t position = batch.prefix_lens[i] + k;
      token_of_slot_[batch.page_tables[i][position / config_.page_size] * std::size_t{config_.page_size} +
                     position % config_.page_size] = batch.token_ids[token];
    }
  }
  if (draft_ != nullptr) draft_->forward({&batch, 1});
}

void NumericSpeculation::draft(std::vector<Verified>& requests, std::span<const std::uint32_t> last_token) {
  for (Verified& request : requests) {
    request.tree.tokens.assign(1, last_token[request.row]);
    request.tree.parents.assign(1, 0);
  }
  if (draft_ != nullptr) {
    draft_chains(requests);
    return;
  }
  const NgramOptions options = {.num_draft_tokens = config_.num_draft_tokens,
                                .max_breadth = config_.max_breadth};
  for (Verified& request : requests) {
    text_.clear();
    for (std::uint32_t position = 0; position < request.prefix_len; ++position)
      text_.push_back(token_of_slot_[slot(request, position)]);
    text_.push_back(request.tree.tokens.front());
    request.tree = draft_ngrams(text_, options);
  }
}

// One token of each request: the last of its tree, behind those before it.
std::span<const float> NumericSpeculation::draft_pass(std::vector<Verified>& requests,
                                                      proto::ForwardMode mode) {
  rows_.clear();
  tables_.clear();
  tokens_.clear();
  prefix_lens_.clear();
  q_lens_.clear();
  seq_lens_.clear();
  for (const Verified& request : requests) {
    const bool decodes = mode == proto::DECODE;
    const std::uint32_t grown = request.tree.size() - 1;
    rows_.push_back(request.row);
    tables_.push_back(request.page_table);
    prefix_lens_.push_back(request.prefix_len + (decodes ? grown : 0));
    q_lens_.push_back(decodes ? 1 : static_cast<std::uint32_t>(request.path.size()));
    seq_lens_.push_back(prefix_lens_.back() + q_lens_.back());
    if (decodes) {
      tokens_.push_back(request.tree.tokens.back());
    } else {
      for (const std::uint32_t node : request.path) tokens_.push_back(request.tree.tokens[node]);
    }
  }
  TokenBatch batch;
  batch.metadata.forward_mode = mode;
  if (mode == proto::DECODE) {
    batch.metadata.decode_seq_lens = seq_lens_;
  } else {
    batch.metadata.extend_prefix_lens = prefix_lens_;
    batch.metadata.extend_lens = q_lens_;
  }
  batch.token_ids = tokens_;
  batch.q_lens = q_lens_;
  batch.prefix_lens = prefix_lens_;
  batch.page_tables = tables_;
  batch.rows = rows_;
  return draft_->forward({&batch, 1});
}

void NumericSpeculation::draft_chains(std::vector<Verified>& requests) {
  const proto::SamplingParams greedy;
  for (std::uint32_t step = 0; step < config_.num_steps; ++step) {
    const std::span<const float> logits = draft_pass(requests, proto::DECODE);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      DraftTree& tree = requests[i].tree;
      tree.parents.push_back(tree.size() - 1);
      tree.tokens.push_back(
          sample(logits.subspan(i * config_.vocab_size, config_.vocab_size), greedy, /*position=*/0));
    }
  }
}

void NumericSpeculation::keep(std::vector<Verified>& requests, TokenForward& target) {
  std::vector<std::uint32_t> from, to;
  for (const Verified& request : requests) {
    for (std::uint32_t k = 0; k < request.path.size(); ++k) {
      const std::uint32_t node = request.path[k];
      token_of_slot_[slot(request, request.prefix_len + k)] = request.tree.tokens[node];
      if (node == k) continue;
      from.push_back(slot(request, request.prefix_len + node));
      to.push_back(slot(request, request.prefix_len + k));
    }
  }
  if (!from.empty()) target.move_tokens(/*dp_rank=*/0, from, to);
  // What was drafted last was never an input of the draft model.
  if (draft_ != nullptr) draft_pass(requests, proto::DRAFT_EXTEND);
}

}  // namespace tpsim::rank
