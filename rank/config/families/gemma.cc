// Gemma 2 and 3 (text): norms on both sides of attention and MLP, windows in most layers. Gemma 1 has
// neither.
#include <array>
#include <cmath>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// A cap that the model's class has by default, that null switches off.
double cap(const ConfigReader& config, const char* key, double otherwise) {
  return config.real(key, config.json().contains(key) ? 0 : otherwise, 0, 1e6);
}

void read_gemma(const ConfigReader& config, ModelConfig& model) {
  const bool gemma1 = model.architecture == "GemmaForCausalLM";
  const bool gemma3 = !gemma1 && model.architecture != "Gemma2ForCausalLM";
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.qk_norm = gemma3;
  // Transformers writes no key where the model's class ties by default.
  model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  model.norm_plus_one = true;
  model.post_norms = !gemma1;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  const char* const act = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  // Gemma 1 says "gelu" and means this one (Transformers' configuration_gemma.py).
  model.activation = gemma1 && config.text(act, "gelu") == "gelu"
                         ? Activation::kGeluTanh
                         : read_activation(config, act, "gelu_pytorch_tanh");
  model.attention_scale = 1 / std::sqrt(config.real("query_pre_attn_scalar", 256, 1e-3, 1e6));
  model.attention_logit_cap = cap(config, "attn_logit_softcapping", gemma3 ? 0 : 50);
  model.final_logit_cap = cap(config, "final_logit_softcapping", gemma3 ? 0 : 30);
  if (gemma1) {
    model.attention_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
    model.attention_logit_cap = model.final_logit_cap = 0;
    read_layers(config, model);
    read_rope(config, model);
    return;
  }
  // Gemma 2: every other layer slides, from the first on; Gemma 3: all but every sixth.
  const std::uint32_t pattern = gemma3 ? config.number_or("sliding_window_pattern", 6) : 2;
  read_layers(config, model, [&](std::uint32_t layer) { return (layer + 1) % pattern != 0; });
  RopeDefaults rope;
  if (gemma3) rope = {.theta = 1e6, .local_theta = 10000};
  read_rope(config, model, rope);
}

// SigLIP; average pooling makes tokens of its patches.
void read_gemma3_vision(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kFixed;
  vision.num_layers = config.number_or("num_hidden_layers", 27);
  vision.hidden_size = config.number_or("hidden_size", 1152);
  vision.intermediate_size = config.number_or("intermediate_size", 4304);
  vision.num_heads = config.number_or("num_attention_heads", 16);
  vision.patch_size = read_side(config, "patch_size", 14);
  vision.image_size = read_side(config, "image_size", 896);
  const std::uint32_t tokens = root.number_or("mm_tokens_per_image", 256);
  const std::uint32_t patches = vision.image_size / vision.patch_size;
  while ((patches / (vision.merge_size + 1)) * (patches / (vision.merge_size + 1)) >= tokens)
    ++vision.merge_size;
  const std::uint32_t tokens_of_side = patches / vision.merge_size;
  if (tokens_of_side * tokens_of_side != tokens)
    throw_user_error("{}: mm_tokens_per_image {} is not what squares of {} patches make", root.where(),
                     tokens, patches);
  vision.position_embeddings = patches * patches;
  vision.one_by_one = vision.both_ways = true;
  vision.hidden_act = config.text("hidden_act", "gelu_pytorch_tanh");
  vision.norm_eps = static_cast<float>(config.real("layer_norm_eps", 1e-6, 0, 1));
  vision.projector_input = vision.hidden_size;
  vision.markers_before = vision.markers_after = 2;  // a blank line and <start_of_image>; the same after it
  constexpr std::uint32_t kBlankLine = 108;          // of Gemma 3's tokenizer
  const std::uint32_t begin = read_token(root, "boi_token_index", "boi_token_id");
  const std::uint32_t end = read_token(root, "eoi_token_index", "eoi_token_id");
  if (begin > 0 && end > 0) {
    vision.marker_ids_before = {kBlankLine, begin};
    vision.marker_ids_after = {end, kBlankLine};
  }
  vision.on_by_default = false;
}

constexpr std::array<Architecture, 4> kGemmaArchitectures = {{
    {.name = "GemmaForCausalLM"},
    {.name = "Gemma2ForCausalLM"},
    {.name = "Gemma3ForCausalLM", .facts = {.torch_norms = true}},
    {.name = "Gemma3ForConditionalGeneration", .facts = {.torch_norms = true}},
}};
// Gemma3TextConfig's, which published text_configs leave out.
constexpr std::string_view kTextDefaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072})";

constexpr std::array<VisionArchitecture, 1> kGemmaVision = {{
    {.name = "Gemma3ForConditionalGeneration", .read = read_gemma3_vision},
}};

}  // namespace

extern const ModelFamily kGemmaFamily;
const ModelFamily kGemmaFamily = {.architectures = kGemmaArchitectures,
                                  .read = read_gemma,
                                  .text_defaults = kTextDefaults,
                                  .vision = kGemmaVision};

}  // namespace tpsim::rank
