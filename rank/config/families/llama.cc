// Llama 1 to 3 and models of its shape (AFM of Arcee, without gates), and EAGLE's heads, which are one layer
// of it (rank/llm/draft_model.h).
#include <array>
#include <string>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_llama(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  if (model.architecture == "ArceeForCausalLM") {
    model.ungated_mlp = true;
    if (const std::string act = config.text("hidden_act", "relu2"); act != "relu2")
      throw_user_error("{}: key \"hidden_act\" is \"{}\"; it must be relu2", config.where(),
                       act.substr(0, 40));
  } else {
    model.activation = read_activation(config, "hidden_act", "silu");
  }
  read_layers(config, model);
  read_rope(config, model);
  if (model.architecture == "LlamaForCausalLMEagle3")
    model.vocab_size = config.number_or("draft_vocab_size", model.vocab_size);
}

constexpr std::array<Architecture, 4> kLlamaArchitectures = {{
    {.name = "LlamaForCausalLM",
     .facts = {.pipeline = true,
               .head_on_every_stage = true,
               .tied_head_is_embedding = true,
               .wide_draft_tree = true},
     .model_type = "llama"},
    {.name = "ArceeForCausalLM", .facts = {.pipeline = true}},
    {.name = "LlamaForCausalLMEagle", .facts = {.draft_head = DraftHead::kEagle}},
    {.name = "LlamaForCausalLMEagle3", .facts = {.draft_head = DraftHead::kEagle3}},
}};

}  // namespace

extern const ModelFamily kLlamaFamily;
const ModelFamily kLlamaFamily = {kLlamaArchitectures, read_llama};

}  // namespace tpsim::rank
