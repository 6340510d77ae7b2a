#include "rank/numeric/dense_mlp.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <utility>

#include "proto/base/stop_flag.h"

namespace tpsim::rank::dense {
namespace {

Row softmax(Row x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
  return x;
}

std::vector<std::size_t> best(const Row& scores, std::size_t count) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  return order;
}

double activated(Activation activation, double g, double up, double limit) {
  switch (activation) {
    case Activation::kSilu: {
      const double gate = g / (1 + std::exp(-g));
      return limit > 0 ? std::min(gate, limit) * std::clamp(up, -limit, limit) : gate * up;
    }
    case Activation::kGeluTanh:
      return 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g))) * up;
    case Activation::kGptOssSwiGlu: {
      const double clamped = std::min(g, 7.0);
      return clamped / (1 + std::exp(-1.702 * clamped)) * (std::clamp(up, -7.0, 7.0) + 1);
    }
  }
  return 0;
}

// Experts and their weights, of one row of router logits.
std::vector<std::pair<std::size_t, double>> chosen(const MoeConfig& moe, const std::vector<float>& correction,
                                                   Row scores, std::span<const std::uint32_t> given) {
  const std::size_t experts = moe.num_experts;
  if (moe.scoring == ExpertScoring::kSoftmaxThenTopK) scores = softmax(scores);
  if (moe.scoring == ExpertScoring::kSigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  }
  if (moe.scoring == ExpertScoring::kSqrtSoftplus) {
    for (double& score : scores) score = std::sqrt(std::log1p(std::exp(score)));
  }
  Row choice = scores;
  for (std::size_t i = 0; i < correction.size(); ++i) choice[i] += correction[i];
  if (moe.num_groups > 1) {
    const std::size_t size = experts / moe.num_groups;
    Row groups;
    for (std::size_t g = 0; g < moe.num_groups; ++g) {
      Row of(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
             choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(of.rbegin(), of.rend());
      groups.push_back(moe.group_score_top2 ? of[0] + of[1] : of[0]);
    }
    Row limited(choice.size(), -HUGE_VAL);
    for (const std::size_t g : best(groups, moe.topk_groups)) {
      for (std::size_t i = g * size; i < (g + 1) * size; ++i) limited[i] = choice[i];
    }
    choice = limited;
  }
  const std::vector<std::size_t> order =
      given.empty() ? best(choice, moe.top_k) : std::vector<std::size_t>(given.begin(), given.end());
  Row weights;
  for (const std::size_t expert : order) weights.push_back(scores[expert]);
  if (moe.scoring == ExpertScoring::kTopKThenSoftmax) weights = softmax(weights);
  if (moe.scoring == ExpertScoring::kTopKThenSigmoid) {
    for (double& weight : weights) weight = 1 / (1 + std::exp(-weight));
  }
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<std::pair<std::size_t, double>> out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double weight = moe.normalize_weights ? weights[i] / sum : weights[i];
    out.emplace_back(order[i], weight * moe.routed_scaling_factor);
  }
  return out;
}

void add(Row& to, double weight, const Row& x) {
  for (std::size_t i = 0; i < x.size(); ++i) to[i] += weight * x[i];
}

}  // namespace

Rows times(const PackedMatrix& w, const Rows& x, const std::vector<float>& bias) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  StopFlag::throw_if_requested();
  const auto rows = static_cast<Eigen::Index>(x.size());
  const Eigen::Index k = w.k();
  const Eigen::Index n = w.n();
  Matrix in(rows, k), weights(n, k);
  for (Eigen::Index r = 0; r < rows; ++r)
    std::ranges::copy(x[static_cast<std::size_t>(r)], in.row(r).begin());
  std::vector<float> row(w.k());
  for (std::uint32_t i = 0; i < w.n(); ++i) {
    w.row(i, row.data());
    std::ranges::copy(row, weights.row(i).begin());
  }
  Matrix out = in * weights.transpose();
  for (std::size_t i = 0; i < bias.size(); ++i) out.col(static_cast<Eigen::Index>(i)).array() += bias[i];
  Rows result;
  for (Eigen::Index r = 0; r < rows; ++r) result.emplace_back(out.row(r).begin(), out.row(r).end());
  return result;
}

Rows mlp(const ModelConfig& model, const MlpWeights& weights, const Rows& x) {
  Rows inner = times(weights.gate_up, x, weights.gate_up_bias);
  for (Row& row : inner) {
    if (model.ungated_mlp) {
      const bool gelu = model.activation == Activation::kGeluTanh;
      for (double& value : row)
        value = gelu ? activated(model.activation, value, 1, 0) : value > 0 ? value * value : 0;
    }
    for (std::size_t i = 0; !model.ungated_mlp && i < weights.width; ++i)
      row[i] = activated(model.activation,
                         model.limits_gates && weights.limit > 0 ? std::min(row[i], weights.limit) : row[i],
                         row[weights.width + i], weights.limit);
    row.resize(weights.width);
  }
  return times(weights.down, inner, weights.down_bias);
}

Rows routed_experts(const ModelConfig& model, const MoeWeights& weights, const Rows& routed_by,
                    const Rows& given, std::span<const std::uint32_t> ids) {
  const MoeConfig& moe = model.moe;
  const bool latent = moe.latent_size > 0;
  const Rows x = latent ? times(weights.to_latent, given) : given;
  const Rows scores = times(weights.router, routed_by, weights.router_bias);
  Rows out(x.size(), Row(x.front().size(), 0.0));
  std::map<std::size_t, std::vector<std::pair<std::size_t, double>>> rows_of;  // per expert: rows, weights
  for (std::size_t r = 0; r < x.size(); ++r) {
    std::span<const std::uint32_t> table = weights.experts_of_token;
    if (!table.empty()) table = table.subspan(std::size_t{ids[r]} * moe.top_k, moe.top_k);
    for (const auto& [index, weight] : chosen(moe, weights.correction_bias, scores[r], table))
      rows_of[index].emplace_back(
          r, weights.expert_scales.empty() ? weight : weight * weights.expert_scales[index]);
  }
  for (const auto& [index, rows] : rows_of) {
    Rows in;
    for (const auto& [r, weight] : rows) {
      in.push_back(x[r]);
      if (!moe.weight_on_input) continue;
      for (double& value : in.back()) value *= weight;
    }
    const Rows results = mlp(model, weights.experts[index], in);
    for (std::size_t i = 0; i < rows.size(); ++i)
      add(out[rows[i].first], moe.weight_on_input ? 1 : rows[i].second, results[i]);
  }
  return latent ? times(weights.from_latent, out) : out;
}

Rows experts(const ModelConfig& model, const MoeWeights& weights, const Rows& x,
             std::span<const std::uint32_t> ids) {
  Rows out = routed_experts(model, weights, x, x, ids);
  if (model.moe.num_shared_experts == 0) return out;
  const Rows shared = mlp(model, weights.shared, x);
  for (std::size_t r = 0; r < x.size(); ++r) {
    double gate = 0;
    for (std::size_t i = 0; i < weights.shared_gate.size(); ++i) gate += x[r][i] * weights.shared_gate[i];
    add(out[r], weights.shared_gate.empty() ? 1 : 1 / (1 + std::exp(-gate)), shared[r]);
  }
  return out;
}

}  // namespace tpsim::rank::dense
