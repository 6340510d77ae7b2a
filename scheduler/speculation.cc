#include "scheduler/speculation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "proto/base/ceil_div.h"
#include "proto/base/random.h"

namespace tpsim::scheduler {
namespace {

// A number in [0, 1) from three others.
double uniform(std::uint64_t seed, std::uint64_t id, std::uint64_t step) {
  std::uint64_t x = seed * kGoldenGamma ^ id * 0xbf58476d1ce4e5b9U ^ step * 0x94d049bb133111ebU;
  for (int round = 0; round < 2; ++round) x = mix64(x + kGoldenGamma);
  return unit_interval(x);
}

struct Draft {
  double probability;  // that the target's own tokens lead here
  std::uint32_t depth;
};

// The verified drafts, by falling probability. A draft is never more probable than its parent, which comes
// before it, so a parent is never left out.
std::vector<Draft> best_drafts(std::span<const double> rates, std::uint32_t num_steps, std::uint32_t topk,
                               std::uint32_t count) {
  std::vector<Draft> all, leaves = {{1, 0}};
  for (std::uint32_t step = 0; step < num_steps; ++step) {
    const double rate = rates[std::min<std::size_t>(step, rates.size() - 1)];
    std::vector<Draft> grown;
    for (const Draft& leaf : leaves) {
      double probability = leaf.probability * rate;
      for (std::uint32_t guess = 0; guess < topk; ++guess, probability *= 1 - rate)
        grown.push_back({probability, leaf.depth + 1});
    }
    all.insert(all.end(), grown.begin(), grown.end());
    std::ranges::stable_sort(grown, std::ranges::greater(), &Draft::probability);
    if (grown.size() > topk) grown.resize(topk);
    leaves = std::move(grown);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Draft::probability);
  if (all.size() > count) all.resize(count);
  return all;
}

}  // namespace

AcceptLengths::AcceptLengths(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0;
  for (const double weight : weights) {
    reached += weight;
    cumulative_.push_back(reached / sum);
  }
  while (cumulative_.size() > 1 && cumulative_[cumulative_.size() - 2] >= 1) cumulative_.pop_back();
  cumulative_.back() = 1;
}

AcceptLengths AcceptLengths::from_rates(std::span<const double> rates, std::uint32_t num_steps,
                                        std::uint32_t topk, std::uint32_t num_draft_tokens) {
  // The accepted path reaches some node of each depth with the sum of their probabilities: they exclude each
  // other.
  std::vector<double> reaches(num_steps + 2, 0.0);
  reaches[0] = 1;
  for (const Draft& draft : best_drafts(rates, num_steps, topk, num_draft_tokens - 1))
    reaches[draft.depth] += draft.probability;
  std::vector<double> weights;
  for (std::uint32_t depth = 0; depth <= num_steps; ++depth)
    weights.push_back(std::max(0.0, reaches[depth] - reaches[depth + 1]));
  return AcceptLengths(weights);
}

double AcceptLengths::mean() const {
  double mean = 0, before = 0;
  for (std::size_t i = 0; i < cumulative_.size(); ++i) {
    mean += (cumulative_[i] - before) * static_cast<double>(i + 1);
    before = cumulative_[i];
  }
  return mean;
}

std::uint32_t AcceptLengths::draw(std::uint64_t seed, std::uint64_t id, std::uint32_t step) const {
  const double at = uniform(seed, id, step);
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), at);
  return static_cast<std::uint32_t>(found - cumulative_.begin()) + 1;
}

void SpeculationConfig::follow(const SglangRelease& release, bool disable_overlap_schedule) {
  v2 = release.rules.speculation_is_v2 || (has_draft_model() && topk == 1 && !disable_overlap_schedule);
  retracts_longest_first = release.rules.speculation_retracts_by_length;
}

std::uint32_t SpeculationConfig::drafted_tokens_v1(std::uint32_t length, std::uint32_t page_size) const {
  if (!has_draft_model()) return 0;
  if (page_size == 1 || topk == 1) return num_steps * topk;
  // Every branch begins with a copy of the last page that is not full.
  const std::uint32_t pages = (length % page_size + num_steps + page_size - 1) / page_size;
  return length / page_size * page_size + pages * page_size * topk - length;
}

AcceptanceByStep::AcceptanceByStep(AcceptLengths everywhere) {
  if (everywhere.known()) from(0, std::move(everywhere));
}

void AcceptanceByStep::from(std::uint32_t step, AcceptLengths lengths) {
  stages_.push_back({step, std::move(lengths)});
}

const AcceptLengths& AcceptanceByStep::at(std::uint32_t step) const {
  return std::prev(std::ranges::upper_bound(stages_, step, {}, &Stage::step))->lengths;
}

std::uint32_t SpeculationConfig::alloc_len_per_decode(std::uint32_t page_size) const {
  if (page_size == 1 || topk == 1 || !has_draft_model()) return std::max(num_steps * topk, num_draft_tokens);
  // Every branch has pages of its own, and a copy of the last page that is not full.
  const std::uint32_t pages = (page_size - 1 + num_steps + page_size - 1) / page_size;
  return std::max(pages * page_size * topk, num_draft_tokens);
}

std::uint32_t SpeculationConfig::tokens_of_step_v1(std::uint32_t page_size) const {
  if (page_size == 1) return std::max(num_steps * topk, num_draft_tokens);
  const std::uint32_t branch = ceil_align(topk > 1 ? num_steps + page_size : num_steps, page_size);
  return std::max(branch * topk, ceil_align(num_draft_tokens, page_size));
}

}  // namespace tpsim::scheduler
