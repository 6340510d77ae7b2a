#include "rank/parallel/numeric_speculation.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tpsim::rank {

ModelDrafter::ModelDrafter(const DraftingConfig& config, std::unique_ptr<TokenForward> draft)
    : config_(config), draft_(std::move(draft)) {}

// A branch begins with a copy of the page that its request has not filled.
std::uint32_t ModelDrafter::pages_of_branch(const DraftingConfig& config) {
  return (config.page_size - 1 + config.num_steps + config.page_size - 1) / config.page_size;
}

std::uint32_t ModelDrafter::scratch_pages(const DraftingConfig& config) {
  return config.topk == 1 ? 0 : kTogether * config.topk * pages_of_branch(config);
}

void ModelDrafter::keep_seeds(const TokenBatch& batch, std::span<const float> logits) {
  const std::span<const float> hidden = draft_->hidden();
  std::size_t tokens = 0;
  for (const std::uint32_t count : batch.q_lens) tokens += count;
  const std::size_t width = hidden.size() / tokens;
  std::size_t end = 0;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    end += batch.q_lens[i];
    const std::uint32_t row = batch.row(static_cast<std::uint32_t>(i));
    if (seeds_.size() <= row) seeds_.resize(std::size_t{row} + 1);
    Seed& seed = seeds_[row];
    seed.guesses.clear();
    add_best_guesses(logits_of(logits, i), config_.topk, config_.token_of, seed.guesses);
    const auto last = hidden.subspan((end - 1) * width, width);
    seed.hidden.assign(last.begin(), last.end());
  }
}

void ModelDrafter::extend(const TokenBatch& batch, std::span<const std::uint32_t> next_tokens,
                          std::span<const float> hidden) {
  tokens_.clear();
  std::size_t first = 0;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    const auto ids = batch.token_ids.subspan(first, batch.q_lens[i]);
    tokens_.insert(tokens_.end(), ids.begin() + 1, ids.end());
    tokens_.push_back(next_tokens[i]);
    first += ids.size();
  }
  TokenBatch ahead = batch;
  ahead.token_ids = tokens_;
  ahead.hidden = hidden;
  keep_seeds(ahead, draft_->forward({&ahead, 1}));
}

void ModelDrafter::draft(std::span<Verified> requests) {
  for (std::size_t first = 0; first < requests.size(); first += kTogether) {
    const auto some = requests.subspan(first, std::min<std::size_t>(kTogether, requests.size() - first));
    lay_branches(some);
    beams_.clear();
    hidden_.clear();
    for (const Verified& request : some) {
      const Seed& seed = seeds_[request.row];
      beams_.emplace_back(seed.guesses);
      for (std::uint32_t leaf = 0; leaf < config_.topk; ++leaf)
        hidden_.insert(hidden_.end(), seed.hidden.begin(), seed.hidden.end());
    }
    for (std::uint32_t step = 0; step + 1 < config_.num_steps; ++step) grow(some, step);
    for (std::size_t i = 0; i < some.size(); ++i)
      some[i].tree = beams_[i].tree(some[i].tree.tokens.front(), config_.num_draft_tokens);
  }
}

// The page table of each branch of each request.
void ModelDrafter::lay_branches(std::span<const Verified> requests) {
  tables_.clear();
  if (config_.topk == 1) {
    for (const Verified& request : requests) tables_.push_back(request.page_table);
    return;
  }
  const std::uint32_t page = config_.page_size;
  std::uint32_t scratch = config_.num_pages;
  std::vector<std::uint32_t> from, to;
  branches_.resize(requests.size() * config_.topk);
  for (std::size_t b = 0; b < branches_.size(); ++b) {
    const Verified& request = requests[b / config_.topk];
    const std::uint32_t full = request.prefix_len / page;
    branches_[b].assign(request.page_table.begin(), request.page_table.begin() + full);
    for (std::uint32_t k = 0; k < request.prefix_len % page; ++k) {
      from.push_back(request.page_table[full] * page + k);
      to.push_back(scratch * page + k);
    }
    for (std::uint32_t i = 0; i < pages_of_branch(config_); ++i) branches_[b].push_back(scratch++);
  }
  if (!from.empty()) draft_->move_tokens(/*dp_rank=*/0, from, to);
  for (const std::vector<std::uint32_t>& branch : branches_) tables_.emplace_back(branch);
}

void ModelDrafter::clear_pass() {
  for (std::vector<std::uint32_t>* const of : {&rows_, &tokens_, &prefix_lens_, &q_lens_}) of->clear();
}

TokenBatch ModelDrafter::pass() const {
  TokenBatch batch;
  batch.token_ids = tokens_;
  batch.q_lens = q_lens_;
  batch.prefix_lens = prefix_lens_;
  batch.page_tables = tables_;
  batch.rows = rows_;
  batch.hidden = hidden_;
  return batch;
}

// One token of each leaf, after those that stood in its place before; hidden_: what the leaf's guesser was
// left with.
void ModelDrafter::grow(std::span<const Verified> requests, std::uint32_t step) {
  clear_pass();
  seq_lens_.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (const DraftBeams::Leaf& leaf : beams_[i].leaves()) {
      rows_.push_back(requests[i].row);
      tokens_.push_back(leaf.token);
      prefix_lens_.push_back(requests[i].prefix_len + step);
      seq_lens_.push_back(prefix_lens_.back() + 1);
    }
  }
  q_lens_.assign(rows_.size(), 1);
  TokenBatch batch = pass();
  batch.metadata.forward_mode = proto::DECODE;
  batch.metadata.decode_seq_lens = seq_lens_;
  const std::span<const float> logits = draft_->forward({&batch, 1});
  const std::span<const float> hidden = draft_->hidden();
  const std::size_t width = hidden.size() / rows_.size();
  hidden_.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    guesses_.clear();
    for (std::uint32_t leaf = 0; leaf < config_.topk; ++leaf)
      add_best_guesses(logits_of(logits, i * config_.topk + leaf), config_.topk, config_.token_of, guesses_);
    beams_[i].grow(guesses_);
    for (const DraftBeams::Leaf& leaf : beams_[i].leaves()) {
      const auto of_parent = hidden.subspan((i * config_.topk + leaf.parent) * width, width);
      hidden_.insert(hidden_.end(), of_parent.begin(), of_parent.end());
    }
  }
}

void ModelDrafter::follow(std::span<const Verified> requests, std::span<const float> hidden) {
  clear_pass();
  tables_.clear();
  hidden_.clear();
  const std::size_t width = hidden.size() / (requests.size() * config_.num_draft_tokens);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Verified& request = requests[i];
    rows_.push_back(request.row);
    tables_.push_back(request.page_table);
    prefix_lens_.push_back(request.prefix_len);
    q_lens_.push_back(static_cast<std::uint32_t>(request.path.size()));
    tokens_.insert(tokens_.end(), request.sampled.begin(), request.sampled.end());
    for (const std::uint32_t node : request.path) {
      const auto of_node = hidden.subspan((i * config_.num_draft_tokens + node) * width, width);
      hidden_.insert(hidden_.end(), of_node.begin(), of_node.end());
    }
  }
  TokenBatch batch = pass();
  batch.metadata.forward_mode = proto::DRAFT_EXTEND;
  batch.metadata.extend_prefix_lens = prefix_lens_;
  batch.metadata.extend_lens = q_lens_;
  keep_seeds(batch, draft_->forward({&batch, 1}));
}

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

void NumericSpeculation::copy_pages(std::span<const std::uint32_t> from, std::span<const std::uint32_t> to) {
  if (token_of_slot_.empty()) return;
  const std::size_t size = config_.page_size;
  for (std::size_t i = 0; i < from.size(); ++i)
    std::copy_n(&token_of_slot_[from[i] * size], size, &token_of_slot_[to[i] * size]);
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
