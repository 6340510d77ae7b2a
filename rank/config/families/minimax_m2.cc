// MiniMax M2, M2.1, M2.5 and M2.7: plain attention of which half of each head is rotated, queries and keys
// normed over all heads of a layer at once, and experts in every layer without shared ones.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_minimax_m2(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  const double rotated = config.number_or("rotary_dim", 64) / static_cast<double>(model.head_dim);
  if (rotated > 1)
    throw_user_error("{}: key \"rotary_dim\" is more than the {} elements of a head", config.where(),
                     model.head_dim);
  read_rope(config, model, {.theta = 5e6, .partial_rotary_factor = rotated});
  model.qk_norm = model.qk_norm_over_heads = config.flag("use_qk_norm", false);
  if (model.qk_norm && config.text("qk_norm_type", "per_layer") != "per_layer")
    throw_user_error("{}: key \"qk_norm_type\" must be \"per_layer\", as SGLang asks", config.where());
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("intermediate_size", 1, kWidestExpert);
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = true;
  for (LayerConfig& layer : model.layers) layer.moe = true;
  model.names.renamed = {
      {"block_sparse_moe.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"}};
}

constexpr std::array<Architecture, 1> kMinimaxM2Architectures = {{
    {.name = "MiniMaxM2ForCausalLM",
     .facts = {.data_parallel_attention = true, .deepep = true, .pipeline = true, .fp32_router = 1}},
}};

}  // namespace

extern const ModelFamily kMinimaxM2Family;
const ModelFamily kMinimaxM2Family = {kMinimaxM2Architectures, read_minimax_m2};

}  // namespace tpsim::rank
