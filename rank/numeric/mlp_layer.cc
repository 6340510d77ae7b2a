#include "rank/numeric/mlp_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/pass.h"

namespace tpsim::rank {

MlpLayer::MlpLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
    : model_(model), pool_(pool), times_(times) {}

void MlpLayer::gated(const MlpWeights& weights, const float* x, std::uint32_t tokens, float* out) {
  const std::uint32_t width = weights.width;
  gate_up_.resize(std::size_t{tokens} * 2 * width);
  inner_.resize(std::size_t{tokens} * width);
  {
    const Stopwatch watch(times_.gemm);
    weights.gate_up.multiply(x, tokens, model_.hidden_size, gate_up_.data(), 2 * width,
                             weights.gate_up_bias.empty() ? nullptr : weights.gate_up_bias.data(), pool_);
  }
  {
    const Stopwatch watch(times_.other);
    pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
      const float* const gate = gate_up_.data() + std::size_t{t} * 2 * width;
      float* const inner = inner_.data() + std::size_t{t} * width;
      switch (model_.activation) {
        case Activation::kSilu:
          silu_and_mul(gate, gate + width, width, inner);
          break;
        case Activation::kGeluTanh:
          gelu_tanh_and_mul(gate, gate + width, width, inner);
          break;
        case Activation::kGptOssSwiGlu:
          gpt_oss_swiglu(gate, gate + width, width, inner);
          break;
      }
    });
  }
  const Stopwatch watch(times_.gemm);
  weights.down.multiply(inner_.data(), tokens, width, out, model_.hidden_size,
                        weights.down_bias.empty() ? nullptr : weights.down_bias.data(), pool_);
}

// Only for `rows`; zeros elsewhere.
void MlpLayer::gated_rows(const MlpWeights& weights, const float* x, std::uint32_t tokens, Rows rows,
                          float* out) {
  const std::size_t hidden = model_.hidden_size;
  std::fill(out, out + rows.first * hidden, 0.0F);
  std::fill(out + (rows.first + rows.count) * hidden, out + tokens * hidden, 0.0F);
  if (rows.count > 0) gated(weights, x + rows.first * hidden, rows.count, out + rows.first * hidden);
}

const std::vector<std::vector<MlpLayer::Assigned>>& MlpLayer::assign(const MoeWeights& weights,
                                                                     const float* x, Rows rows) {
  const std::uint32_t hidden = model_.hidden_size;
  const std::uint32_t num_experts = model_.moe.num_experts;
  scores_.resize(std::size_t{rows.count} * num_experts);
  if (rows.count > 0) {
    const Stopwatch watch(times_.gemm);
    weights.router.multiply(x + std::size_t{rows.first} * hidden, rows.count, hidden, scores_.data(),
                            num_experts, weights.router_bias.empty() ? nullptr : weights.router_bias.data(),
                            pool_);
  }
  assigned_.resize(num_experts);
  for (auto& tokens_of : assigned_) tokens_of.clear();
  for (std::uint32_t t = 0; t < rows.count; ++t) {
    route(model_.moe, std::span(scores_).subspan(std::size_t{t} * num_experts, num_experts),
          weights.correction_bias, routed_);
    for (const Routed& to : routed_) assigned_[to.expert].push_back({rows.first + t, to.weight});
  }
  return assigned_;
}

void MlpLayer::shared_experts(const MoeWeights& weights, const float* x, std::uint32_t tokens, Rows rows,
                              float* out) {
  const std::uint32_t hidden = model_.hidden_size;
  if (weights.shared.width == 0) {
    std::fill(out, out + std::size_t{tokens} * hidden, 0.0F);
    return;
  }
  gated_rows(weights.shared, x, tokens, rows, out);
  for (std::uint32_t t = 0; !weights.shared_gate.empty() && t < tokens; ++t) {
    const std::size_t row = std::size_t{t} * hidden;
    const float score = dot(x + row, weights.shared_gate.data(), hidden);
    scale(out + row, hidden, 1.0F / (1.0F + std::exp(-score)));
  }
}

void MlpLayer::add_routed(const MoeWeights& weights, const std::vector<std::vector<Assigned>>& assigned,
                          const float* x, float* out) {
  const std::uint32_t hidden = model_.hidden_size;
  for (std::size_t i = 0; i < weights.experts.size(); ++i) {
    const std::vector<Assigned>& mine = assigned[weights.first_expert + i];
    if (mine.empty()) continue;
    const auto count = static_cast<std::uint32_t>(mine.size());
    gathered_.resize(std::size_t{count} * hidden);
    result_.resize(std::size_t{count} * hidden);
    for (std::size_t k = 0; k < mine.size(); ++k)
      std::memcpy(gathered_.data() + k * hidden, x + std::size_t{mine[k].token} * hidden,
                  hidden * sizeof(float));
    if (model_.moe.weight_on_input) {
      for (std::size_t k = 0; k < mine.size(); ++k)
        scale(gathered_.data() + k * hidden, hidden, mine[k].weight);
    }
    gated(weights.experts[i], gathered_.data(), count, result_.data());
    const Stopwatch watch(times_.other);
    for (std::size_t k = 0; k < mine.size(); ++k) {
      float* const to = out + std::size_t{mine[k].token} * hidden;
      const float* const from = result_.data() + k * hidden;
      const float weight = model_.moe.weight_on_input ? 1 : mine[k].weight;
      for (std::uint32_t c = 0; c < hidden; ++c) to[c] += weight * from[c];
    }
  }
}

void MlpLayer::forward(const LayerWeights& weights, bool moe, const Shard& shard, const float* x,
                       std::uint32_t tokens, Rows whole, float* out) {
  const Rows all{0, tokens};
  if (moe) {
    shared_experts(weights.moe, x, tokens, all, out);
    add_routed(weights.moe, assign(weights.moe, x, all), x, out);
  } else {
    gated_rows(weights.mlp, x, tokens, shard.layout.moe_dense_tp1 ? whole : all, out);
  }
}

}  // namespace tpsim::rank
