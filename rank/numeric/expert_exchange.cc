#include "rank/numeric/expert_exchange.h"

#include <cstddef>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/pass.h"

namespace tpsim::rank {

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
  mlp_.add_routed(weights, assigned_, tokens_.data(), results_.data());
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
