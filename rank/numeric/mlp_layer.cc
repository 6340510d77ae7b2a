#include "rank/numeric/mlp_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/pass.h"

namespace tpsim::rank {
namespace {

// The `count` largest of `scores`, in that order.
std::vector<std::uint32_t> largest(std::span<const float> scores, std::uint32_t count) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  order.resize(count);
  return order;
}

// Experts outside the best groups are out, however low the others' corrected scores.
void limit_to_groups(const MoeConfig& config, std::vector<float>& choice) {
  if (config.num_groups <= 1 || config.topk_groups >= config.num_groups) return;
  const std::size_t size = choice.size() / config.num_groups;
  std::vector<float> groups;
  for (std::uint32_t g = 0; g < config.num_groups; ++g) {
    const std::span<const float> of(choice.data() + g * size, size);
    const std::vector<std::uint32_t> best = largest(of, config.group_score_top2 ? 2 : 1);
    float score = 0;
    for (const std::uint32_t expert : best) score += of[expert];
    groups.push_back(score);
  }
  std::vector<bool> kept(config.num_groups, false);
  for (const std::uint32_t g : largest(groups, config.topk_groups)) kept[g] = true;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (!kept[i / size]) choice[i] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

MlpLayer::MlpLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
    : model_(model), pool_(pool), times_(times) {}

void MlpLayer::gated(const MlpWeights& weights, const float* x, std::uint32_t tokens, float* out) {
  const std::uint32_t width = weights.width;
  const std::uint32_t both = weights.gate_up.n();
  gate_up_.resize(std::size_t{tokens} * both);
  inner_.resize(std::size_t{tokens} * width);
  {
    const Stopwatch watch(times_.gemm);
    weights.gate_up.multiply(x, tokens, gate_up_.data(), pool_, weights.gate_up_bias);
  }
  {
    const Stopwatch watch(times_.other);
    pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
      float* const gate = gate_up_.data() + std::size_t{t} * both;
      float* const inner = inner_.data() + std::size_t{t} * width;
      if (model_.ungated_mlp && model_.activation == Activation::kGeluTanh) {
        std::fill(inner, inner + width, 1.0F);
        gelu_tanh_and_mul(gate, inner, width, inner);
        return;
      }
      if (model_.ungated_mlp) {  // the square of what is positive
        for (std::uint32_t i = 0; i < width; ++i)
          inner[i] = std::max(gate[i], 0.0F) * std::max(gate[i], 0.0F);
        return;
      }
      switch (model_.activation) {
        case Activation::kSilu:
          if (weights.limit > 0 && model_.limits_gates) {
            const auto limit = static_cast<float>(weights.limit);
            for (std::uint32_t i = 0; i < width; ++i) {
              inner[i] = std::clamp(gate[width + i], -limit, limit);
              gate[i] = std::min(gate[i], limit);
            }
            silu_and_mul(gate, inner, width, inner);
          } else if (weights.limit > 0) {
            limited_silu_and_mul(gate, gate + width, width, static_cast<float>(weights.limit), inner);
          } else {
            silu_and_mul(gate, gate + width, width, inner);
          }
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
  weights.down.multiply(inner_.data(), tokens, out, pool_, weights.down_bias);
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
    weights.router.multiply(x + std::size_t{rows.first} * hidden, rows.count, scores_.data(), pool_,
                            weights.router_bias);
  }
  assigned_.resize(num_experts);
  for (auto& tokens_of : assigned_) tokens_of.clear();
  for (std::uint32_t t = 0; t < rows.count; ++t) {
    std::span<const std::uint32_t> given = weights.experts_of_token;
    if (!given.empty())
      given = given.subspan(std::size_t{token_ids_[rows.first + t]} * model_.moe.top_k, model_.moe.top_k);
    route(model_.moe, std::span(scores_).subspan(std::size_t{t} * num_experts, num_experts),
          weights.correction_bias, routed_, given);
    for (const Routed& to : routed_) {
      const float scale = weights.expert_scales.empty() ? 1 : weights.expert_scales[to.expert];
      assigned_[to.expert].push_back({rows.first + t, to.weight * scale});
    }
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
                          const float* x, std::uint32_t tokens, float* out) {
  const std::uint32_t latent = model_.moe.latent_size;
  if (latent == 0) return add_experts(weights, assigned, model_.hidden_size, x, out);
  // What comes back to the hidden size is a rank's part of the sum.
  given_.resize(std::size_t{tokens} * latent);
  said_.assign(given_.size(), 0.0F);
  widened_.resize(std::size_t{tokens} * model_.hidden_size);
  weights.to_latent.multiply(x, tokens, given_.data(), pool_);
  add_experts(weights, assigned, latent, given_.data(), said_.data());
  weights.from_latent.multiply(said_.data(), tokens, widened_.data(), pool_);
  add(out, widened_.data(), widened_.size());
}

// `size`: elements of what experts are given.
void MlpLayer::add_experts(const MoeWeights& weights, const std::vector<std::vector<Assigned>>& assigned,
                           std::uint32_t size, const float* x, float* out) {
  const std::uint32_t hidden = size;
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
    add_routed(weights.moe, assign(weights.moe, x, all), x, tokens, out);
  } else {
    gated_rows(weights.mlp, x, tokens, shard.layout.moe_dense_tp1 ? whole : all, out);
  }
}

void route(const MoeConfig& config, std::span<float> scores, std::span<const float> correction,
           std::vector<Routed>& out, std::span<const std::uint32_t> given) {
  const auto size = static_cast<std::uint32_t>(scores.size());
  if (config.scoring == ExpertScoring::kSoftmaxThenTopK) {
    softmax(scores.data(), size);
  } else if (config.scoring == ExpertScoring::kSigmoid) {
    for (float& score : scores) score = 1.0F / (1.0F + std::exp(-score));
  } else if (config.scoring == ExpertScoring::kSqrtSoftplus) {
    for (float& score : scores) score = std::sqrt(softplus(score));
  }
  std::vector<float> choice(scores.begin(), scores.end());
  for (std::size_t i = 0; i < correction.size(); ++i) choice[i] += correction[i];
  limit_to_groups(config, choice);
  const std::vector<std::uint32_t> chosen =
      given.empty() ? largest(choice, config.top_k) : std::vector<std::uint32_t>(given.begin(), given.end());
  std::vector<float> weights;
  weights.reserve(chosen.size());
  for (const std::uint32_t expert : chosen) weights.push_back(scores[expert]);
  if (config.scoring == ExpertScoring::kTopKThenSoftmax) softmax(weights.data(), config.top_k);
  if (config.scoring == ExpertScoring::kTopKThenSigmoid) {
    for (float& weight : weights) weight = 1.0F / (1.0F + std::exp(-weight));
  }
  if (config.normalize_weights) {
    const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F) + 1e-20F;
    for (float& weight : weights) weight /= sum;
  }
  out.clear();
  for (std::size_t i = 0; i < chosen.size(); ++i)
    out.push_back({chosen[i], weights[i] * static_cast<float>(config.routed_scaling_factor)});
  std::sort(out.begin(), out.end(), [](const Routed& a, const Routed& b) { return a.expert < b.expert; });
}

void ExpertExchange::dispatch(const MoeWeights& weights, MlpLayer::Rows own, const float* x,
                              std::vector<std::vector<float>>& messages) {
  const std::size_t hidden = model_.hidden_size;
  const std::uint32_t ranks = collectives_.tp_size();
  const std::uint32_t per_rank = model_.moe.num_experts / ranks;
  messages.assign(ranks, {});
  // Per token and rank: where the entry's count of experts stands; experts come in ascending order.
  const auto& assigned = mlp_.assign(weights, x, own);
  std::vector<std::vector<std::vector<MlpLayer::Assigned>>> of(
      own.count, std::vector<std::vector<MlpLayer::Assigned>>(ranks));
  for (std::uint32_t expert = 0; expert < assigned.size(); ++expert) {
    for (const MlpLayer::Assigned& token : assigned[expert])
      of[token.token - own.first][expert / per_rank].push_back({expert, token.weight});
  }
  for (std::uint32_t t = 0; t < own.count; ++t) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<MlpLayer::Assigned>& experts = of[t][rank];
      if (experts.empty()) continue;
      std::vector<float>& message = messages[rank];
      message.push_back(static_cast<float>(own.first + t));
      message.push_back(static_cast<float>(experts.size()));
      for (const MlpLayer::Assigned& expert : experts) {
        message.push_back(static_cast<float>(expert.token));
        message.push_back(expert.weight);
      }
      const float* const row = x + (own.first + t) * hidden;
      message.insert(message.end(), row, row + hidden);
    }
  }
}

void ExpertExchange::exchange(const Collectives::Messages& sent, Collectives::Messages& received) {
  const Stopwatch watch(times_.collective);
  collectives_.all_to_all(sent, received);
}

void ExpertExchange::compute(const MoeWeights& weights, const std::vector<std::vector<float>>& arrived,
                             std::vector<std::vector<float>>& answers) {
  const std::size_t hidden = model_.hidden_size;
  assigned_.resize(model_.moe.num_experts);
  for (auto& of : assigned_) of.clear();
  tokens_.clear();
  std::vector<std::vector<float>> numbers(arrived.size());
  std::uint32_t count = 0;
  for (std::size_t from = 0; from < arrived.size(); ++from) {
    const std::vector<float>& message = arrived[from];
    for (std::size_t at = 0; at < message.size(); ++count) {
      numbers[from].push_back(message[at++]);
      for (auto experts = static_cast<std::uint32_t>(message[at++]); experts > 0; --experts, at += 2)
        assigned_[static_cast<std::uint32_t>(message[at])].push_back({count, message[at + 1]});
      const auto row = message.begin() + static_cast<std::ptrdiff_t>(at);
      tokens_.insert(tokens_.end(), row, row + static_cast<std::ptrdiff_t>(hidden));
      at += hidden;
    }
  }
  results_.assign(tokens_.size(), 0.0F);
  mlp_.add_routed(weights, assigned_, tokens_.data(), count, results_.data());
  answers.assign(arrived.size(), {});
  const float* result = results_.data();
  for (std::size_t from = 0; from < arrived.size(); ++from) {
    for (const float number : numbers[from]) {
      answers[from].push_back(number);
      answers[from].insert(answers[from].end(), result, result + hidden);
      result += hidden;
    }
  }
}

void ExpertExchange::forward(std::span<const MoeWeights* const> weights, std::span<const MlpLayer::Rows> own,
                             const float* x, std::uint32_t tokens, std::span<float* const> out) {
  const std::size_t hidden = model_.hidden_size;
  sent_.resize(weights.size());
  answers_.resize(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) dispatch(*weights[i], own[i], x, sent_[i]);
  exchange(sent_, arrived_);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    compute(*weights[i], arrived_[i], answers_[i]);
    mlp_.shared_experts(*weights[i], x, tokens, own[i], out[i]);
  }
  exchange(answers_, returned_);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (const std::vector<float>& message : returned_[i]) {
      for (std::size_t at = 0; at < message.size(); at += 1 + hidden)
        add(out[i] + static_cast<std::size_t>(message[at]) * hidden, message.data() + at + 1, hidden);
    }
  }
}

}  // namespace tpsim::rank
