#include "rank/numeric/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "proto/base/random.h"

namespace tpsim::rank {
namespace {

std::uint64_t mix(std::uint64_t x) { return mix64(x + kGoldenGamma); }

// Uniform in [0, 1), of seed and position alone.
double draw(std::uint64_t seed, std::uint32_t position) { return unit_interval(mix(mix(seed) ^ position)); }

// The first largest logit; not-a-number never wins.
std::uint32_t greedy(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[best])) best = i;
  }
  return static_cast<std::uint32_t>(best);
}

}  // namespace

// As SGLang's top_k_top_p_min_p_sampling_from_probs_torch: probabilities in descending order; top-p keeps a
// token while what comes before it is not more than top_p; top-k keeps the first k; then they add up to 1
// again.
std::uint32_t sample(std::span<const float> logits, const proto::SamplingParams& params,
                     std::uint32_t position) {
  if (params.temperature() <= 0 || params.top_k() == 1) return greedy(logits);
  const float largest = logits[greedy(logits)];
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto weight = [&](std::uint32_t id) {
    const double w = std::exp((double{logits[id]} - double{largest}) / params.temperature());
    return std::isnan(w) ? 0.0 : w;
  };
  double total = 0;
  for (const std::uint32_t id : order) total += weight(id);
  if (!(total > 0) || !std::isfinite(total)) return greedy(logits);
  const auto likelier = [&](std::uint32_t a, std::uint32_t b) {
    const double wa = weight(a);
    const double wb = weight(b);
    return wa != wb ? wa > wb : a < b;
  };
  std::size_t kept = order.size();
  if (params.top_k() > 0 && params.top_k() < kept) {
    kept = params.top_k();
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept - 1), order.end(),
                     likelier);
    order.resize(kept);
  }
  std::sort(order.begin(), order.end(), likelier);
  const bool cut = params.top_p() > 0 && params.top_p() < 1;
  double mass = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (cut && mass > params.top_p() * total) kept = i;
    if (i < kept) mass += weight(order[i]);
  }
  double left = draw(params.seed(), position) * mass;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(order[i]);
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

namespace {

// Adds the tokens of text from `at` on as a path under the root, as far as room and breadth allow.
void add_path(std::span<const std::uint32_t> text, std::size_t at, const NgramOptions& options,
              DraftTree& tree) {
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size() && tree.size() < options.num_draft_tokens; ++i) {
    const std::uint32_t known = tree.child(node, text[i]);
    if (known != tree.size()) {
      node = known;
      continue;
    }
    if (std::count(tree.parents.begin() + 1, tree.parents.end(), node) >=
        static_cast<std::ptrdiff_t>(options.max_breadth))
      return;
    tree.tokens.push_back(text[i]);
    tree.parents.push_back(node);
    node = tree.size() - 1;
  }
}

}  // namespace

std::uint32_t DraftTree::child(std::uint32_t parent, std::uint32_t token) const {
  for (std::uint32_t node = parent + 1; node < size(); ++node) {
    if (parents[node] == parent && tokens[node] == token) return node;
  }
  return size();
}

std::vector<std::uint32_t> depths_of(std::span<const std::uint32_t> parents) {
  std::vector<std::uint32_t> depths(parents.size(), 0);
  for (std::size_t node = 1; node < parents.size(); ++node) depths[node] = depths[parents[node]] + 1;
  return depths;
}

void verify_tree(const DraftTree& tree, std::span<const std::uint32_t> predicted,
                 std::vector<std::uint32_t>& path) {
  path.assign(1, 0);
  for (;;) {
    const std::uint32_t next = tree.child(path.back(), predicted[path.back()]);
    if (next == tree.size()) return;
    path.push_back(next);
  }
}

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

DraftTree draft_ngrams(std::span<const std::uint32_t> text, const NgramOptions& options) {
  DraftTree tree;
  tree.tokens.push_back(text.back());
  tree.parents.push_back(0);
  const std::size_t longest = std::min<std::size_t>(options.max_match, text.size() - 1);
  for (std::size_t length = longest; length > 0 && tree.size() < options.num_draft_tokens; --length) {
    const auto suffix = text.last(length);
    // The latest occurrence first.
    for (std::size_t end = text.size() - 1; end >= length; --end) {
      if (!std::equal(suffix.begin(), suffix.end(), text.begin() + static_cast<std::ptrdiff_t>(end - length)))
        continue;
      add_path(text, end, options, tree);
      if (tree.size() == options.num_draft_tokens) break;
    }
  }
  while (tree.size() < options.num_draft_tokens) {
    // Behind the deepest path, so that a chain stays one.
    const std::uint32_t parent = options.max_breadth == 1 ? tree.size() - 1 : 0;
    tree.tokens.push_back(text.back());
    tree.parents.push_back(parent);
  }
  return tree;
}

}  // namespace tpsim::rank
