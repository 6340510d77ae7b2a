// Layers and their windows, MLA, and the smaller parts that families share.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "rank/config/config_parts.h"

namespace tpsim::rank {
namespace {

std::vector<bool> sliding_layers(const ConfigReader& config, const ModelConfig& model, std::uint32_t window,
                                 const std::function<bool(std::uint32_t)>& slides) {
  std::vector<bool> sliding(model.num_layers, false);
  if (!config.has("layer_types")) {
    for (std::uint32_t i = 0; window > 0 && i < model.num_layers; ++i) sliding[i] = slides(i);
    return sliding;
  }
  const Json& types = config.json()["layer_types"];
  if (!types.is_array() || types.size() != model.num_layers) {
    throw_user_error("{}: key \"layer_types\" has {} entries, but num_hidden_layers is {}", config.where(),
                     types.is_array() ? types.size() : 0, model.num_layers);
  }
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention") {
      throw_user_error("{}: key \"layer_types\" may hold full_attention and sliding_attention only",
                       config.where());
    }
    sliding[i] = types[i] == "sliding_attention";
  }
  if (window == 0 && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    throw_user_error("{}: layers use sliding_attention, but key \"sliding_window\" is missing",
                     config.where());
  }
  return sliding;
}

}  // namespace

Activation read_activation(const ConfigReader& config, const char* key, const char* otherwise) {
  const std::string name = config.text(key, otherwise);
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  throw_user_error("{}: key \"{}\" is \"{}\"; supported are silu and gelu_pytorch_tanh", config.where(), key,
                   name.substr(0, 40));
}

void read_layers(const ConfigReader& config, ModelConfig& model,
                 const std::function<bool(std::uint32_t)>& slides) {
  const std::uint32_t window = config.number_or("sliding_window", 0, 0);
  const std::vector<bool> sliding = sliding_layers(config, model, window, slides);
  model.layers.assign(model.num_layers, {});
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (sliding[i]) model.layers[i].sliding_window = window;
  }
}

void read_layers(const ConfigReader& config, ModelConfig& model) {
  read_layers(config, model, [](std::uint32_t) { return false; });
}

void read_mla(const ConfigReader& config, ModelConfig& model) {
  MlaConfig& mla = model.mla;
  constexpr std::uint32_t kMost = 1U << 16;
  mla.kv_lora_rank = config.number("kv_lora_rank", 1, kMost);
  mla.q_lora_rank = config.has("q_lora_rank") ? config.number("q_lora_rank", 1, kMost) : 0;
  mla.qk_nope_head_dim = config.number("qk_nope_head_dim", 1, 1024);
  mla.qk_rope_head_dim = config.number("qk_rope_head_dim", 2, 1024);
  mla.v_head_dim = config.number("v_head_dim", 1, 1024);
  if (mla.qk_rope_head_dim % 2 != 0)
    throw_user_error("{}: key \"qk_rope_head_dim\" is {}; it must be even", config.where(),
                     mla.qk_rope_head_dim);
  if (config.flag("attention_bias", false))
    throw_user_error("{}: key \"attention_bias\" is true, which is not supported for {}", config.where(),
                     model.architecture);
  model.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  model.attention_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
}

void read_eos(const ConfigReader& config, ModelConfig& model) {
  if (!config.has("eos_token_id")) return;
  const Json& eos = config.json()["eos_token_id"];
  const Json list = eos.is_array() ? eos : Json::array({eos});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > 4e9) {
      throw_user_error("{}: key \"eos_token_id\" must be a token id or a list of them", config.where());
    }
    const auto eos_id = id.get<std::uint32_t>();
    if (std::find(model.eos_token_ids.begin(), model.eos_token_ids.end(), eos_id) ==
        model.eos_token_ids.end())
      model.eos_token_ids.push_back(eos_id);
  }
}

}  // namespace tpsim::rank
