// Gemma 2 and 3 (text): norms on both sides of attention and MLP, windows in most layers.
#include <array>
#include <cmath>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

// A cap that the model's class has by default, that null switches off.
double cap(const ConfigReader& config, const char* key, double otherwise) {
  return config.real(key, config.json().contains(key) ? 0 : otherwise, 0, 1e6);
}

void read(const ConfigReader& config, ModelConfig& model) {
  const bool gemma3 = model.architecture != "Gemma2ForCausalLM";
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.qk_norm = gemma3;
  // Transformers writes no key where the model's class ties by default.
  model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  model.norm_plus_one = model.post_norms = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  model.activation = read_activation(
      config, config.has("hidden_activation") ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
  model.attention_scale = 1 / std::sqrt(config.real("query_pre_attn_scalar", 256, 1e-3, 1e6));
  model.attention_logit_cap = cap(config, "attn_logit_softcapping", gemma3 ? 0 : 50);
  model.final_logit_cap = cap(config, "final_logit_softcapping", gemma3 ? 0 : 30);
  // Gemma 2: every other layer slides, from the first on; Gemma 3: all but every sixth.
  const std::uint32_t pattern = gemma3 ? config.number_or("sliding_window_pattern", 6) : 2;
  read_layers(config, model, [&](std::uint32_t layer) { return (layer + 1) % pattern != 0; });
  RopeDefaults rope;
  if (gemma3) rope = {.theta = 1e6, .local_theta = 10000};
  read_rope(config, model, rope);
}

constexpr std::array<std::string_view, 3> kArchitectures = {"Gemma2ForCausalLM", "Gemma3ForCausalLM",
                                                            "Gemma3ForConditionalGeneration"};
// Gemma3TextConfig's, which published text_configs leave out.
constexpr std::string_view kTextDefaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072})";

}  // namespace

extern const ModelFamily kGemmaFamily;
const ModelFamily kGemmaFamily = {kArchitectures, read, kTextDefaults};

}  // namespace tpsim::rank
