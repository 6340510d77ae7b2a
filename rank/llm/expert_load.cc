#include "rank/llm/expert_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "proto/base/error.h"
#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;
using Weights = std::vector<double>;

// Probabilities that a token visits each expert, in proportion to `weights` but at most 1 each (a token
// visits an expert once); they add up to top_k. REQUIRES: a positive sum, top_k <= experts.
Weights visit_probabilities(const Weights& weights, std::uint32_t top_k) {
  Weights out(weights.size(), 0);
  std::vector<bool> full(weights.size(), false);
  double left = top_k;
  for (bool again = true; again && left > 0;) {
    again = false;
    double sum = 0;
    for (std::size_t e = 0; e < weights.size(); ++e) sum += full[e] ? 0 : weights[e];
    if (sum <= 0) {  // fewer experts were ever visited than a token needs
      for (std::size_t e = 0; e < weights.size(); ++e) {
        if (!full[e]) out[e] = left / static_cast<double>(std::count(full.begin(), full.end(), false));
      }
      break;
    }
    const double scale = left / sum;
    for (std::size_t e = 0; e < weights.size(); ++e) {
      if (full[e]) continue;
      out[e] = weights[e] * scale;
      if (out[e] < 1) continue;
      out[e] = 1;
      full[e] = true;
      left -= 1;
      again = true;
    }
  }
  return out;
}

Weights zipf(double alpha, std::uint32_t experts, std::mt19937_64& random) {
  Weights weights(experts);
  for (std::uint32_t i = 0; i < experts; ++i) weights[i] = std::pow(i + 1.0, -alpha);
  // Not std::shuffle: its order is the library's own.
  for (std::size_t i = weights.size(); i > 1; --i) std::swap(weights[i - 1], weights[random() % i]);
  return weights;
}

// One [layers][experts] out of the file, summed over passes.
std::vector<Weights> read_counts(const std::string& flag, const std::string& path, const ModelConfig& model) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw_user_error(
        "{} {}: must be uniform, zipf:ALPHA or a JSON file with recorded counts, and there is no such file",
        flag, path);
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object() || !json.contains("logical_count"))
    throw_user_error("{} {}: must hold a JSON object with \"logical_count\", [layers][experts]", flag, path);
  const MoeConfig& moe = model.moe;
  std::vector<Weights> sums;
  const auto add_pass = [&](const Json& pass) {
    const bool all = pass.is_array() && pass.size() == model.num_layers;
    if (!pass.is_array() || (!all && pass.size() != moe.num_layers))
      throw_user_error("{} {}: \"logical_count\" must have {} layers, those of {} with experts", flag, path,
                       moe.num_layers, model.name);
    std::size_t layer = 0;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      if (all && !model.layers[i].moe) continue;
      if (!pass[i].is_array() || pass[i].size() != moe.num_experts)
        throw_user_error("{} {}: layer {} of \"logical_count\" must have {} experts", flag, path, i,
                         moe.num_experts);
      if (sums.size() <= layer) sums.emplace_back(moe.num_experts, 0.0);
      for (std::size_t e = 0; e < pass[i].size(); ++e) {
        const Json& count = pass[i][e];
        if (!count.is_number() || !(count.get<double>() >= 0) || !std::isfinite(count.get<double>()))
          throw_user_error("{} {}: layer {}, expert {}: a count must be a number, 0 or more", flag, path, i,
                           e);
        sums[layer][e] += count.get<double>();
      }
      ++layer;
    }
  };
  const Json& counts = json["logical_count"];
  const bool passes = counts.is_array() && !counts.empty() && counts[0].is_array() && !counts[0].empty() &&
                      counts[0][0].is_array();
  if (passes) {
    for (const Json& pass : counts) add_pass(pass);
  } else {
    add_pass(counts);
  }
  // A layer nobody visited says nothing.
  for (Weights& layer : sums) {
    if (std::all_of(layer.begin(), layer.end(), [](double count) { return count == 0; }))
      std::fill(layer.begin(), layer.end(), 1.0);
  }
  return sums;
}

}  // namespace

ExpertLoad::ExpertLoad(const std::string& flag, const std::string& spec, const ModelConfig& model,
                       std::uint64_t seed) {
  if (spec == "uniform") return;
  if (model.moe.num_layers == 0)
    throw_user_error("{} {}: {} has no experts; leave it out", flag, spec, model.name);
  constexpr std::string_view kZipf = "zipf:";
  if (spec.starts_with(kZipf)) {
    double alpha = -1;
    const char* const end = spec.data() + spec.size();
    const auto [rest, error] = std::from_chars(spec.data() + kZipf.size(), end, alpha);
    if (error != std::errc() || rest != end || !(alpha >= 0 && alpha <= 10))
      throw_user_error("{} {}: ALPHA must be a number from 0 to 10", flag, spec);
    std::mt19937_64 random(seed);
    for (std::uint32_t layer = 0; layer < model.moe.num_layers; ++layer)
      shares_.push_back(visit_probabilities(zipf(alpha, model.moe.num_experts, random), model.moe.top_k));
    return;
  }
  for (const Weights& counts : read_counts(flag, spec, model))
    shares_.push_back(visit_probabilities(counts, model.moe.top_k));
}

ExpertRows ExpertLoad::busiest(std::size_t layer, double tokens, const MoeConfig& moe,
                               std::uint32_t ep_size) const {
  const double experts = moe.num_experts;
  const double visits = tokens * moe.top_k;
  ExpertRows most;
  if (uniform()) {
    most.rows = visits / ep_size;
    // Expected number of experts that are hit by rows spread evenly.
    most.hit = experts / ep_size * (1 - power(1 - 1 / experts, static_cast<std::uint64_t>(visits)));
  } else {
    const std::vector<double>& shares = shares_[layer];
    const std::size_t count = shares.size() / ep_size;
    for (std::size_t rank = 0; rank < ep_size; ++rank) {
      ExpertRows rows;
      for (std::size_t e = rank * count; e < (rank + 1) * count; ++e) {
        rows.rows += tokens * shares[e];
        rows.hit += 1 - power(1 - shares[e], static_cast<std::uint64_t>(tokens));
      }
      if (rows.rows > most.rows) most = rows;
    }
  }
  most.elsewhere = visits - most.rows;
  return most;
}

ExpertLoad ExpertLoad::of_layers(std::size_t first, std::size_t count) const {
  ExpertLoad stage;
  for (std::size_t i = first; i < std::min(first + count, shares_.size()); ++i)
    stage.shares_.push_back(shares_[i]);
  return stage;
}

double ExpertLoad::imbalance(const MoeConfig& moe, std::uint32_t ep_size) const {
  if (uniform()) return 1;
  double sum = 0;
  for (std::size_t layer = 0; layer < num_layers(); ++layer)
    sum += busiest(layer, 1, moe, ep_size).rows * ep_size / moe.top_k;
  return sum / static_cast<double>(num_layers());
}

}  // namespace tpsim::rank
