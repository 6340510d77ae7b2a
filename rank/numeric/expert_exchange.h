// Experts as DeepEP brings tokens to them (--moe-a2a-backend deepep): every rank chooses experts for its own
// tokens, sends each token once to every rank that has some of them, and adds up what comes back, in rank
// order. Shared experts are whole on every rank and see its own tokens only.
//
// Source: SGLang 0.5.23, layers/moe/token_dispatcher/deepep.py (dispatch and combine) and
// models/deepseek_v2.py (forward_deepep).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/numeric/collectives.h"
#include "rank/numeric/mlp_layer.h"

namespace tpsim::rank {

class ExpertExchange {
 public:
  ExpertExchange(const ModelConfig& model, MlpLayer& mlp, Collectives& collectives, NumericTimes& times)
      : model_(model), mlp_(mlp), collectives_(collectives), times_(times) {}

  // weights[i] and own[i] are of the i-th rank of this process; own tokens of all ranks are each of x
  // [tokens, hidden_size] once. out[i] receives [tokens, hidden_size]: the results of own[i], and zeros.
  void forward(std::span<const MoeWeights* const> weights, std::span<const MlpLayer::Rows> own,
               const float* x, std::uint32_t tokens, std::span<float* const> out);

 private:
  // A message is one entry after the other: the token's number, how many experts of the receiver it goes to,
  // each expert and its weight, and the token itself. Whole numbers up to 2^24 are exact in fp32.
  void dispatch(const MoeWeights& weights, MlpLayer::Rows own, const float* x,
                std::vector<std::vector<float>>& messages);
  void exchange(const Collectives::Messages& sent, Collectives::Messages& received);
  void compute(const MoeWeights& weights, const std::vector<std::vector<float>>& arrived,
               std::vector<std::vector<float>>& answers);

  const ModelConfig& model_;
  MlpLayer& mlp_;
  Collectives& collectives_;
  NumericTimes& times_;
  Collectives::Messages sent_, arrived_, answers_, returned_;
  std::vector<std::vector<MlpLayer::Assigned>> assigned_;  // per expert
  std::vector<float> tokens_, results_;
};

}  // namespace tpsim::rank
