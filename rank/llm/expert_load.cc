#include "rank/llm/expert_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/random.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/eplb.h"

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

// AIConfigurator's range grows with the tokens of a call; a model's popular experts are the same in every
// call, so that one range stands for all: 0.8 of 1,280.
constexpr double kPowerLawRange = 1024;

// ALPHA of "NAME:ALPHA"; nullopt: another spec.
std::optional<double> alpha_of(const std::string& flag, const std::string& spec, std::string_view name) {
  if (!spec.starts_with(name)) return std::nullopt;
  double alpha = -1;
  const char* const end = spec.data() + spec.size();
  const auto [rest, error] = std::from_chars(spec.data() + name.size(), end, alpha);
  if (error != std::errc() || rest != end || !(alpha >= 0 && alpha <= 10))
    throw_user_error("{} {}: ALPHA must be a number from 0 to 10", flag, spec);
  return alpha;
}

// What one token adds to the variance of the visits to one of `ranks` ranks, where all experts are as
// popular. Choosing within the best groups of experts, as DeepSeek V3 does in four of eight, doubles it.
double visit_variance(const MoeConfig& moe, double ranks) {
  const double experts = moe.num_experts, groups = moe.num_groups;
  const double top_k = moe.top_k, top_groups = moe.topk_groups;
  const double of_group = experts / groups, own = experts / ranks, allowed = top_groups * of_group;
  const double visited = top_k / experts;
  // Of two experts both are visited if their groups are chosen and they are among the best of these.
  const double both = top_k * (top_k - 1) / std::max(1.0, allowed * (allowed - 1));
  const double apart = groups > 1 ? top_groups * (top_groups - 1) / (groups * (groups - 1)) : 0;
  const double near = own * (std::min(own, of_group) - 1), far = own * (own - 1) - near;
  return own * visited * (1 - visited) + near * (both * top_groups / groups - visited * visited) +
         far * (both * apart - visited * visited);
}

struct Normal {
  double mean = 0, variance = 0;
};

// The larger of two, as the normal distribution of the same moments (Clark 1961).
Normal larger(const Normal& a, const Normal& b) {
  const double spread = std::sqrt(a.variance + b.variance);
  if (spread <= 0) return a.mean >= b.mean ? a : b;
  const double apart = (a.mean - b.mean) / spread;
  const double density = std::exp(-apart * apart / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const double first = std::erfc(-apart / std::numbers::sqrt2) / 2;
  const double mean = a.mean * first + b.mean * (1 - first) + spread * density;
  const double square = (a.mean * a.mean + a.variance) * first +
                        (b.mean * b.mean + b.variance) * (1 - first) + (a.mean + b.mean) * spread * density;
  return {mean, std::max(0.0, square - mean * mean)};
}

// The most visits that one of several ranks gets, of which `means` are expected and which add up to all: as
// if each were drawn by itself, but for the rest, which the others have less. At least one that is the mean.
double most_visits(const std::vector<double>& means, double variance) {
  const auto ranks = static_cast<double>(means.size());
  const double sum = std::accumulate(means.begin(), means.end(), 0.0);
  if (ranks < 2 || sum <= 0) return sum;
  Normal most;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const Normal rank = {means[i], variance * means[i] * ranks / sum * ranks / (ranks - 1)};
    most = i == 0 ? rank : larger(most, rank);
  }
  // Processes compare prices bit for bit, and the last bits of exp() differ between processors.
  constexpr double kSteps = 1024;
  return std::min(sum, std::round(most.mean * kSteps) / kSteps);
}

// base^exponent of an exponent that need not be whole, between its neighbours.
double between_powers(double base, double exponent) {
  const double whole = std::floor(exponent);
  const double rest = exponent - whole;
  return power(base, static_cast<std::uint64_t>(whole)) * (1 - rest + rest * base);
}

// One [layers][experts] out of the file, summed over passes.
std::vector<Weights> read_counts(const std::string& flag, const std::string& path, const ModelConfig& model) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw_user_error(
        "{} {}: must be balanced, uniform, power_law:ALPHA, zipf:ALPHA or a JSON file with recorded counts, "
        "and there is no such file",
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

std::vector<double> power_law_weights(double alpha, double range, std::uint32_t experts,
                                      std::mt19937_64& random) {
  Weights weights(experts);
  const double power = 1 - alpha;
  for (double& weight : weights) {
    // Not std::uniform_real_distribution: its values are the library's own.
    const double drawn = unit_interval(random());
    weight = std::abs(power) < 1e-9 ? std::pow(range, drawn)
                                    : std::pow(1 + (std::pow(range, power) - 1) * drawn, 1 / power);
  }
  return weights;
}

ExpertLoad::ExpertLoad(const std::string& flag, const std::string& spec, const ModelConfig& model,
                       std::uint64_t seed) {
  if (spec == "balanced") return;
  by_chance_ = true;
  if (spec == "uniform") return;
  if (model.moe.num_layers == 0)
    throw_user_error("{} {}: {} has no experts; leave it out", flag, spec, model.name);
  const auto zipf_alpha = alpha_of(flag, spec, "zipf:");
  const auto power_alpha = alpha_of(flag, spec, "power_law:");
  if (zipf_alpha || power_alpha) {
    std::mt19937_64 random(seed);
    for (std::uint32_t layer = 0; layer < model.moe.num_layers; ++layer)
      shares_.push_back(visit_probabilities(
          zipf_alpha ? zipf(*zipf_alpha, model.moe.num_experts, random)
                     : power_law_weights(*power_alpha, kPowerLawRange, model.moe.num_experts, random),
          model.moe.top_k));
    return;
  }
  for (const Weights& counts : read_counts(flag, spec, model))
    shares_.push_back(visit_probabilities(counts, model.moe.top_k));
}

ExpertRows ExpertLoad::busiest(std::size_t layer, double tokens, const MoeConfig& moe,
                               std::uint32_t ep_size) const {
  const double visits = tokens * moe.top_k;
  const double experts = moe.num_experts;
  const std::size_t count = shares_.empty() ? 0 : shares_[layer].size() / ep_size;
  std::vector<double> means(ep_size, visits / ep_size);
  if (!shares_.empty())
    for (std::size_t rank = 0; rank < ep_size; ++rank)
      means[rank] = tokens * std::accumulate(shares_[layer].begin() + rank * count,
                                             shares_[layer].begin() + (rank + 1) * count, 0.0);
  const auto popular = static_cast<std::size_t>(std::max_element(means.begin(), means.end()) - means.begin());
  ExpertRows most;
  most.rows = by_chance_ ? most_visits(means, tokens * visit_variance(moe, ep_size)) : means[popular];
  // Its experts are hit as by as many tokens more.
  const double as_of = tokens * most.rows / means[popular];
  if (shares_.empty()) {
    most.hit = experts / ep_size * (1 - between_powers(1 - moe.top_k / experts, as_of));
  } else {
    for (std::size_t e = popular * count; e < (popular + 1) * count; ++e)
      most.hit += 1 - between_powers(1 - shares_[layer][e], as_of);
  }
  most.elsewhere = visits - most.rows;
  return most;
}

void ExpertLoad::place(const ModelConfig& model, const ExpertLoad* recorded, std::uint32_t redundant,
                       std::uint32_t ep_size) {
  const std::uint32_t experts = model.moe.num_experts;
  const Weights even(experts, double(model.moe.top_k) / experts);
  // Even loads stay even without copies.
  if (redundant == 0 && shares_.empty()) return;
  if (shares_.empty()) shares_.assign(model.moe.num_layers, even);
  for (std::size_t layer = 0; layer < shares_.size(); ++layer) {
    const Weights loads = recorded == nullptr || recorded->shares_.empty() ? even : recorded->shares_[layer];
    const std::vector<std::uint32_t> placed = recorded == nullptr
                                                  ? trivial_placement(experts, redundant)
                                                  : balanced_placement(loads, redundant, ep_size);
    std::vector<std::uint32_t> copies(experts, 0);
    for (const std::uint32_t logical : placed) ++copies[logical];
    Weights shares;
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const double share = shares_[layer][placed[i]];
      shares.push_back(recorded != nullptr ? share / copies[placed[i]] : i < experts ? share : 0);
    }
    shares_[layer] = std::move(shares);
  }
}

ExpertLoad ExpertLoad::of_layers(std::size_t first, std::size_t count) const {
  ExpertLoad stage;
  stage.by_chance_ = by_chance_;
  for (std::size_t i = first; i < std::min(first + count, shares_.size()); ++i)
    stage.shares_.push_back(shares_[i]);
  return stage;
}

double ExpertLoad::imbalance(const MoeConfig& moe, std::uint32_t ep_size) const {
  if (shares_.empty()) return 1;
  double sum = 0;
  for (const Weights& shares : shares_) {
    const auto count = static_cast<std::ptrdiff_t>(shares.size() / ep_size);
    double most = 0;
    for (auto rank = shares.begin(); rank != shares.end(); rank += count)
      most = std::max(most, std::accumulate(rank, rank + count, 0.0));
    sum += most * ep_size / moe.top_k;
  }
  return sum / static_cast<double>(num_layers());
}

}  // namespace tpsim::rank
