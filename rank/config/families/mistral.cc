// Mistral 7B and its successors (Mistral Small 3.1's and Medium 3.5's text model): Llama with a window in
// every layer, where a window is given. Mistral Small 4: latent attention and experts in every layer, which
// SGLang serves by its DeepSeek V3 (models/mistral_large_3.py).
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

constexpr ArchitectureFacts kMistral4Facts = {.data_parallel_attention = true,
                                              .deepep = true,
                                              .pipeline = true,
                                              .trtllm_experts = TrtllmExperts::k16BitFp8OrNvfp4,
                                              .multimodal = true,
                                              .priced_only = true};

void read_mistral4(const ConfigReader& config, ModelConfig& model) {
  model.facts = kMistral4Facts;
  model.activation = read_activation(config, "hidden_act", "silu");
  read_mla(config, model);
  read_layers(config, model);
  read_mla_rope(config, model);
  read_grouped_experts(config, model,
                       {.scoring = ExpertScoring::kSoftmaxThenTopK, .normalize_weights = true});
}

// Ministral 3: queries grow beyond the original context.
void read_growth(const ConfigReader& config, ModelConfig& model) {
  if (!config.has("rope_parameters")) return;
  const ConfigReader rope(config.json()["rope_parameters"], config.where() + ": rope parameters");
  const double beta = rope.real("llama_4_scaling_beta", 0, 0, 1e3);
  if (beta == 0) return;
  model.temperature_tuning = {.floor_scale = double(rope.number("original_max_position_embeddings")),
                              .attn_scale = beta,
                              .everywhere = true};
}

void read_mistral(const ConfigReader& config, ModelConfig& model) {
  // The text model's, of a config that describes it apart.
  if (config.text("model_type", "") == "mistral4") {
    read_mistral4(config, model);
    return;
  }
  model.qkv_bias = config.flag("attention_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model, [](std::uint32_t) { return true; });
  read_rope(config, model);
  read_growth(config, model);
}

constexpr std::array<Architecture, 3> kMistralArchitectures = {{
    {.name = "MistralForCausalLM",
     .facts = {.pipeline = true, .head_on_every_stage = true, .tied_head_is_embedding = true}},
    {.name = "Mistral3ForConditionalGeneration"},
    {.name = "Ministral3ForCausalLM", .facts = {.pipeline = true, .head_on_every_stage = true}},
}};

}  // namespace

extern const ModelFamily kMistralFamily;
const ModelFamily kMistralFamily = {kMistralArchitectures, read_mistral};

}  // namespace tpsim::rank
