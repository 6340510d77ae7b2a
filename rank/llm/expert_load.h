// How tokens spread over experts, and what that leaves for the busiest rank.
#pragma once

#include <cstdint>
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
  // Every expert is as likely as any other.
  ExpertLoad() = default;
  // `spec`: "uniform"; "zipf:ALPHA", where the i-th most popular expert of a layer is chosen in proportion to
  // i^-ALPHA and popularity is dealt out over the experts at random; or a JSON file with recorded counts,
  // "logical_count" as [layers][experts] or [passes][layers][experts] (what SGLang's --init-expert-location
  // reads). Throws UserError naming `flag`.
  ExpertLoad(const std::string& flag, const std::string& spec, const ModelConfig& model, std::uint64_t seed);

  bool uniform() const { return shares_.empty(); }
  // Layers with loads of their own; 1 where all are alike.
  std::size_t num_layers() const { return uniform() ? 1 : shares_.size(); }
  // Of `tokens` that each visit top_k experts, the most that one of ep_size ranks with equally many
  // consecutive experts gets in layer `layer`. REQUIRES: ep_size divides the number of experts.
  ExpertRows busiest(std::size_t layer, double tokens, const MoeConfig& moe, std::uint32_t ep_size) const;
  // What experts of layers [first, first + count), counted among those with experts, get: of a pipeline
  // stage.
  ExpertLoad of_layers(std::size_t first, std::size_t count) const;
  // Mean over layers of busiest rows / mean rows; 1 = balanced.
  double imbalance(const MoeConfig& moe, std::uint32_t ep_size) const;

 private:
  // Per layer and expert: the probability that a token visits it; adds up to top_k.
  std::vector<std::vector<double>> shares_;
};

}  // namespace tpsim::rank
