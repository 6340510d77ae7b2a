// gpt-oss: experts with biases in every layer, attention sinks, a window in every other layer.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_gpt_oss(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", true);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.attention_sinks = true;
  model.activation = Activation::kGptOssSwiGlu;
  read_layers(config, model, [](std::uint32_t layer) { return layer % 2 == 0; });
  for (const LayerConfig& layer : model.layers)
    // Without the token itself (get_attention_sliding_window_size of models/gpt_oss.py).
    if (layer.sliding_window > 1) model.swa_pool_window = layer.sliding_window - 1;
  read_rope(config, model, {.theta = 150000});
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = model.intermediate_size;
  moe.scoring = ExpertScoring::kTopKThenSoftmax;
  moe.router_bias = moe.expert_bias = true;
  for (LayerConfig& layer : model.layers) layer.moe = true;
  model.names.router = "router";
  model.names.experts = ExpertLayout::kColumnsInTurns;
}

constexpr std::array<Architecture, 1> kGptOssArchitectures = {{
    {.name = "GptOssForCausalLM",
     .facts = {.data_parallel_attention = true,
               .pipeline = true,
               .head_on_every_stage = true,
               .fuses_all_reduces = 1},
     .model_type = "gpt_oss"},
}};

}  // namespace

extern const ModelFamily kGptOssFamily;
const ModelFamily kGptOssFamily = {kGptOssArchitectures, read_gpt_oss};

}  // namespace tpsim::rank
