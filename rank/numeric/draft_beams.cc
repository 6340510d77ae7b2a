#include "rank/numeric/draft_beams.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace tpsim::rank {

void add_best_guesses(std::span<const float> logits, std::uint32_t topk,
                      std::span<const std::uint32_t> token_of, std::vector<Guess>& out) {
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  // What is not a number is never guessed before what is.
  const auto value = [&](std::uint32_t i) { return std::isnan(logits[i]) ? -INFINITY : logits[i]; };
  std::partial_sort(order.begin(), order.begin() + topk, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  });
  const double largest = value(order.front());
  double total = 0;
  for (std::uint32_t i = 0; i < logits.size(); ++i) total += std::exp(double{value(i)} - largest);
  for (std::uint32_t k = 0; k < topk; ++k) {
    const std::uint32_t index = order[k];
    const double probability = std::exp(double{value(index)} - largest) / total;
    out.push_back({token_of.empty() ? index : token_of[index],
                   std::isnan(probability) ? 0.0F : static_cast<float>(probability)});
  }
}

DraftBeams::DraftBeams(std::span<const Guess> first) {
  for (const Guess& guess : first) {
    leaf_nodes_.push_back(static_cast<std::uint32_t>(nodes_.size()));
    leaves_.push_back({guess.token, 0});
    nodes_.push_back({guess.token, kRoot, guess.probability});
  }
}

std::vector<std::uint32_t> DraftBeams::best(std::size_t first, std::size_t count) const {
  std::vector<std::uint32_t> order(nodes_.size() - first);
  std::iota(order.begin(), order.end(), static_cast<std::uint32_t>(first));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return nodes_[a].score > nodes_[b].score; });
  order.resize(count);
  return order;
}

void DraftBeams::grow(std::span<const Guess> guesses) {
  const std::size_t topk = leaves_.size();
  const std::size_t first = nodes_.size();
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    const std::uint32_t parent = leaf_nodes_[i / topk];
    nodes_.push_back({guesses[i].token, parent, nodes_[parent].score * guesses[i].probability});
  }
  leaf_nodes_ = best(first, topk);
  leaves_.clear();
  for (const std::uint32_t node : leaf_nodes_)
    leaves_.push_back({nodes_[node].token, static_cast<std::uint32_t>((node - first) / topk)});
}

DraftTree DraftBeams::tree(std::uint32_t root_token, std::uint32_t num_draft_tokens) const {
  std::vector<std::uint32_t> chosen = best(0, num_draft_tokens - 1);
  std::sort(chosen.begin(), chosen.end());
  DraftTree tree;
  tree.tokens.push_back(root_token);
  tree.parents.push_back(0);
  for (const std::uint32_t node : chosen) {
    tree.tokens.push_back(nodes_[node].token);
    const std::uint32_t parent = nodes_[node].parent;
    const auto at = std::lower_bound(chosen.begin(), chosen.end(), parent) - chosen.begin();
    tree.parents.push_back(parent == kRoot ? 0 : static_cast<std::uint32_t>(at) + 1);
  }
  return tree;
}

}  // namespace tpsim::rank
