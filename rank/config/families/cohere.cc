// Command R and A of Cohere: attention and MLP read the same norm, which takes the mean off, and are added at
// once; logits are scaled. Of the second generation three of four layers have a window, and the others no
// rotation.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_cohere(const ConfigReader& config, ModelConfig& model) {
  const bool second = model.architecture == "Cohere2ForCausalLM";
  model.rms_norm_eps = config.real("layer_norm_eps", 1e-5, 0, 1);
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.layer_norms = model.parallel_block = true;
  model.qk_norm = model.qk_norm_by_head = config.flag("use_qk_norm", false);
  model.logit_scale = config.real("logit_scale", 0.0625, 1e-6, 1e6);
  model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  model.activation = read_activation(config, "hidden_act", "silu");
  const std::uint32_t pattern = config.number_or("sliding_window_pattern", 4);
  read_layers(config, model, [&](std::uint32_t layer) { return second && (layer + 1) % pattern != 0; });
  for (LayerConfig& layer : model.layers)
    if (second && layer.sliding_window == 0) layer.rope = LayerConfig::kNoRope;
  read_rope(config, model);
  model.ropes.front().interleaved = true;
}

constexpr std::array<Architecture, 2> kCohereArchitectures = {{
    {.name = "CohereForCausalLM"},
    {.name = "Cohere2ForCausalLM"},
}};

}  // namespace

extern const ModelFamily kCohereFamily;
const ModelFamily kCohereFamily = {kCohereArchitectures, read_cohere};

}  // namespace tpsim::rank
