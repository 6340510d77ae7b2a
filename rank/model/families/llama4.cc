// Llama 4 (text): three of four layers rotate and attend within chunks, the others do neither and look at
// everything; experts, one of them shared, in all layers or in every other.
#include <array>
#include <string>
#include <vector>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

// A list of whole numbers below `end` under `key`; empty where there is none.
std::vector<std::uint32_t> numbers(const ConfigReader& config, const char* key, std::uint32_t end) {
  std::vector<std::uint32_t> out;
  if (!config.has(key)) return out;
  const Json& list = config.json()[key];
  if (!list.is_array()) throw_user_error("{}: key \"{}\" must be a list", config.where(), key);
  for (const Json& entry : list) {
    if (!entry.is_number_integer() || entry.get<double>() < 0 || entry.get<double>() >= end)
      throw_user_error("{}: key \"{}\" must hold whole numbers from 0 to {}", config.where(), key, end - 1);
    out.push_back(entry.get<std::uint32_t>());
  }
  return out;
}

// no_rope_layers has 1 where a layer rotates.
void read_rotated_layers(const ConfigReader& config, ModelConfig& model) {
  model.layers.assign(model.num_layers, {});
  const std::vector<std::uint32_t> rotates = numbers(config, "no_rope_layers", 2);
  if (!rotates.empty() && rotates.size() < model.num_layers) {
    throw_user_error("{}: key \"no_rope_layers\" has {} entries, but num_hidden_layers is {}", config.where(),
                     rotates.size(), model.num_layers);
  }
  const std::uint32_t interval = config.number_or("no_rope_layer_interval", 4);
  const std::uint32_t chunk = config.number_or("attention_chunk_size", 0);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    const bool rotated = rotates.empty() ? (i + 1) % interval != 0 : rotates[i] == 1;
    model.layers[i].rope = rotated ? 0 : LayerConfig::kNoRope;
    if (rotated) model.layers[i].attention_chunk = chunk;
    // Not with the class of the text alone; a chunk counts as a window of its length.
    if (rotated && model.architecture == "Llama4ForConditionalGeneration") model.swa_pool_window = chunk;
  }
}

void read_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = 1;
  moe.scoring = ExpertScoring::kTopKThenSigmoid;
  moe.weight_on_input = true;
  if (config.has("moe_layers")) {
    for (const std::uint32_t i : numbers(config, "moe_layers", model.num_layers)) model.layers[i].moe = true;
  } else {
    const std::uint32_t step = config.number_or("interleave_moe_layer_step", 1);
    for (std::uint32_t i = step - 1; i < model.num_layers; i += step) model.layers[i].moe = true;
  }
  model.names.mlp = "feed_forward.";
  model.names.router = "router";
  model.names.shared = "shared_expert.";
  model.names.experts = ExpertLayout::kColumns;
}

void read(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.qk_l2_norm = config.flag("use_qk_norm", true);
  if (config.flag("attn_temperature_tuning", true)) {
    model.temperature_tuning.floor_scale = config.real("floor_scale", 8192, 1, 1e9);
    model.temperature_tuning.attn_scale = config.real("attn_scale", 0.1, 0, 1e3);
  }
  read_rotated_layers(config, model);
  read_rope(config, model, {.theta = 500000});
  model.ropes.front().interleaved = true;
  read_experts(config, model);
  model.intermediate_size = config.number("intermediate_size_mlp", 1, kWidestExpert);
}

constexpr std::array<std::string_view, 2> kArchitectures = {"Llama4ForConditionalGeneration",
                                                            "Llama4ForCausalLM"};

}  // namespace

extern const ModelFamily kLlama4Family;
const ModelFamily kLlama4Family = {kArchitectures, read};

}  // namespace tpsim::rank
