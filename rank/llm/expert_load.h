// How tokens spread over experts, and what that leaves for the busiest rank.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "rank/config/model_config.h"

namespace tpsim::rank {

// Rows of grouped products on one rank: tokens, once for each of its experts that they visit.
struct ExpertRows {
  double rows = 0;
  double hit = 0;        // experts that have any
  double elsewhere = 0;  // visits of the same tokens to experts of other ranks
};

class ExpertLoad {
 public:
  // "balanced": every rank gets its share, as in most measurements of kernels.
  ExpertLoad() = default;
  // `spec`: "balanced"; "uniform", where each token chooses for itself and every expert is as likely as any
  // other; "power_law:ALPHA", where experts' popularity is drawn as AIConfigurator draws it
  // (power_law_weights()); "zipf:ALPHA", where the i-th most popular expert of a layer is chosen in
  // proportion to i^-ALPHA and popularity is dealt out over the experts at random; or a JSON file with
  // recorded counts, "logical_count" as [layers][experts] or [passes][layers][experts] (what SGLang's
  // --init-expert-location reads). Throws UserError naming `flag`.
  ExpertLoad(const std::string& flag, const std::string& spec, const ModelConfig& model, std::uint64_t seed);

  // Whether one of ep_size ranks may have more to do than another, or some experts are chosen more often.
  bool uneven(std::uint32_t ep_size) const { return !shares_.empty() || (by_chance_ && ep_size > 1); }
  // Layers with loads of their own; 1 where all are alike.
  std::size_t num_layers() const { return shares_.empty() ? 1 : shares_.size(); }
  // Of `tokens` that each visit top_k experts, what the one of ep_size ranks with equally many consecutive
  // experts gets that has most, in layer `layer`: the others wait for it. Tokens choose by themselves, so
  // that some rank has more than its share of few tokens even where all experts are as popular. REQUIRES:
  // ep_size divides the number of experts.
  ExpertRows busiest(std::size_t layer, double tokens, const MoeConfig& moe, std::uint32_t ep_size) const;
  // Spreads the same visits over `redundant` experts more, each logical expert's evenly over its copies:
  // placed by EPLB for the loads of `recorded`, or nullptr: where nobody balances, the copies are there and
  // idle.
  void place(const ModelConfig& model, const ExpertLoad* recorded, std::uint32_t redundant,
             std::uint32_t ep_size);
  // What experts of layers [first, first + count), counted among those with experts, get: of a pipeline
  // stage.
  ExpertLoad of_layers(std::size_t first, std::size_t count) const;
  // Mean over layers of busiest rows / mean rows of many tokens; 1 = balanced.
  double imbalance(const MoeConfig& moe, std::uint32_t ep_size) const;

 private:
  bool by_chance_ = false;
  // Per layer and expert, or copy of one, rank by rank: the probability that a token visits it; adds up to
  // top_k.
  std::vector<std::vector<double>> shares_;
};

// Popularities of `experts` experts, drawn from a density of x^-alpha between 1 and `range`: AIConfigurator's
// sample_power_law() (collector/helper.py), whose `range` is 0.8 of the tokens, or 200 where there are fewer
// visits than experts.
std::vector<double> power_law_weights(double alpha, double range, std::uint32_t experts,
                                      std::mt19937_64& random);

}  // namespace tpsim::rank
