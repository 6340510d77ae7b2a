// The MLP of one layer on one rank: dense, or experts.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// Which experts a token goes to, and with what weight.
struct Routed {
  std::uint32_t expert = 0;
  float weight = 0;
};

// `scores`: router logits [num_experts], overwritten. `correction`: the bias that chooses but does not weigh
// (ExpertScoring::kSigmoid), or empty. `given`: the top_k that are chosen whatever the scores say, or empty.
// Fills `out` with top_k entries, by ascending expert. Ties: the lower
// expert.
//
// Sources: DeepSeek-V2 and V3 technical reports (group-limited routing), Transformers' modeling of each.
void route(const MoeConfig& config, std::span<float> scores, std::span<const float> correction,
           std::vector<Routed>& out, std::span<const std::uint32_t> given = {});

class MlpLayer {
 public:
  MlpLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times);

  // Before a pass: its tokens, some of whose experts a table may choose.
  void begin(std::vector<std::uint32_t> token_ids) { token_ids_ = std::move(token_ids); }

  // Tokens [first, first + count).
  struct Rows {
    std::uint32_t first = 0, count = 0;
  };

  // x: normed activations [tokens, hidden_size]; `out` receives this rank's part [tokens, hidden_size].
  // `whole`: the tokens for which this rank computes a dense MLP that is not cut over ranks.
  void forward(const LayerWeights& weights, bool moe, const Shard& shard, const float* x,
               std::uint32_t tokens, Rows whole, float* out);

  // The parts of a layer with experts, for what brings tokens to them in another way (ExpertExchange).
  struct Assigned {
    std::uint32_t token = 0;
    float weight = 0;
  };
  // Where the tokens of `rows` go: by expert, ascending tokens. x: what the router reads. Valid until the
  // next call.
  const std::vector<std::vector<Assigned>>& assign(const MoeWeights& weights, const float* x, Rows rows);
  // Shared experts for `rows` of `tokens`; zeros elsewhere, or everywhere where there are none.
  void shared_experts(const MoeWeights& weights, const float* x, std::uint32_t tokens, Rows rows, float* out);
  // Adds to `out` what this rank's experts make of the tokens that `assigned` sends them: expert by expert,
  // so that a token's results are added up in the same order in any batch.
  void add_routed(const MoeWeights& weights, const std::vector<std::vector<Assigned>>& assigned,
                  const float* x, std::uint32_t tokens, float* out);

 private:
  void add_experts(const MoeWeights& weights, const std::vector<std::vector<Assigned>>& assigned,
                   std::uint32_t size, const float* x, float* out);
  void gated(const MlpWeights& weights, const float* x, std::uint32_t tokens, float* out);
  void gated_rows(const MlpWeights& weights, const float* x, std::uint32_t tokens, Rows rows, float* out);

  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::vector<float> gate_up_, inner_, scores_, gathered_, result_, given_, said_, widened_;
  std::vector<std::vector<Assigned>> assigned_;  // per expert
  std::vector<Routed> routed_;
  std::vector<std::uint32_t> token_ids_;
};

// Experts as DeepEP brings tokens to them (--moe-a2a-backend deepep): every rank chooses experts for its own
// tokens, sends each token once to every rank that has some of them, and adds up what comes back, in rank
// order. Shared experts are whole on every rank and see its own tokens only.
//
// Source: SGLang 0.5.23, layers/moe/token_dispatcher/deepep.py (dispatch and combine) and
// models/deepseek_v2.py (forward_deepep).
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
