#include "rank/model/architecture.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tpsim::rank {
namespace {

bool is_gemma(const ModelConfig& model) { return model.architecture.starts_with("Gemma"); }
bool is_deepseek(const ModelConfig& model) { return model.architecture.starts_with("Deepseek"); }
bool is_gpt_oss(const ModelConfig& model) { return model.architecture == "GptOssForCausalLM"; }

// Which layers slide where "layer_types" does not say: Mistral and Mixtral all, Qwen from max_window_layers
// on, Gemma 2 and gpt-oss every other from the first, Gemma 3 all but every sixth.
std::vector<bool> sliding_by_rule(const ConfigReader& config, const ModelConfig& model,
                                  std::uint32_t window) {
  std::vector<bool> sliding(model.num_layers, false);
  if (window == 0) return sliding;
  const bool qwen = model.architecture.starts_with("Qwen");
  if (qwen && !config.flag("use_sliding_window", false)) return sliding;
  const std::uint32_t from = qwen ? config.number_or("max_window_layers", model.num_layers, 0) : 0;
  const std::uint32_t pattern = config.number_or("sliding_window_pattern", 6);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (model.architecture == "Gemma3ForCausalLM") {
      sliding[i] = (i + 1) % pattern != 0;
    } else if (is_gemma(model) || is_gpt_oss(model)) {
      sliding[i] = i % 2 == 0;
    } else if (!is_deepseek(model) && model.architecture != "LlamaForCausalLM") {
      sliding[i] = i >= from;
    }
  }
  return sliding;
}

std::vector<bool> sliding_layers(const ConfigReader& config, const ModelConfig& model, std::uint32_t window) {
  if (!config.has("layer_types")) return sliding_by_rule(config, model, window);
  const Json& types = config.json()["layer_types"];
  if (!types.is_array() || types.size() != model.num_layers) {
    throw_user_error("{}: key \"layer_types\" has {} entries, but num_hidden_layers is {}", config.where(),
                     types.is_array() ? types.size() : 0, model.num_layers);
  }
  std::vector<bool> sliding;
  for (const Json& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      throw_user_error("{}: key \"layer_types\" may hold full_attention and sliding_attention only",
                       config.where());
    }
    sliding.push_back(type == "sliding_attention");
  }
  if (window == 0 && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    throw_user_error("{}: layers use sliding_attention, but key \"sliding_window\" is missing",
                     config.where());
  }
  return sliding;
}

void read_layers(const ConfigReader& config, ModelConfig& model) {
  const std::uint32_t window = config.number_or("sliding_window", 0, 0);
  const std::vector<bool> sliding = sliding_layers(config, model, window);
  model.layers.assign(model.num_layers, {});
  std::uint32_t windows = 0;
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (!sliding[i]) continue;
    model.layers[i].sliding_window = window;
    ++windows;
  }
  model.attention.clear();
  if (windows < model.num_layers) model.attention.push_back({model.num_layers - windows, 0});
  if (windows > 0) model.attention.push_back({windows, window});
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
}

Activation activation_of(const ConfigReader& config, const ModelConfig& model) {
  if (is_gpt_oss(model)) return Activation::kGptOssSwiGlu;
  const char* key = is_gemma(model) && config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string name = config.text(key, is_gemma(model) ? "gelu_pytorch_tanh" : "silu");
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  throw_user_error("{}: key \"{}\" is \"{}\"; supported are silu and gelu_pytorch_tanh", config.where(), key,
                   name.substr(0, 40));
}

}  // namespace

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

void read_architecture(const ConfigReader& config, ModelConfig& model) {
  const std::string& name = model.architecture;
  const bool bias = config.flag("attention_bias", is_gpt_oss(model));
  model.qkv_bias = name == "Qwen2ForCausalLM" || (bias && !is_deepseek(model));
  model.o_bias = bias && (name == "LlamaForCausalLM" || name.starts_with("Qwen3") || is_gpt_oss(model) ||
                          is_gemma(model));
  model.mlp_bias = name == "LlamaForCausalLM" && config.flag("mlp_bias", false);
  model.qk_norm = name.starts_with("Qwen3") || name == "Gemma3ForCausalLM";
  // Transformers writes no key where the model's class ties by default.
  model.tie_word_embeddings = config.flag("tie_word_embeddings", is_gemma(model));
  model.rms_norm_eps = config.real("rms_norm_eps", is_gpt_oss(model) ? 1e-5 : 1e-6, 0, 1);
  model.norm_plus_one = model.post_norms = is_gemma(model);
  model.embedding_scale = is_gemma(model) ? std::sqrt(static_cast<double>(model.hidden_size)) : 1.0;
  model.attention_sinks = is_gpt_oss(model);
  model.activation = activation_of(config, model);
  if (is_deepseek(model)) read_mla(config, model);
  if (model.head_dim % 2 != 0)
    throw_user_error("{}: key \"head_dim\" is {}; it must be even", config.where(), model.head_dim);
  model.attention_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  if (is_gemma(model)) {
    model.attention_scale = 1 / std::sqrt(config.real("query_pre_attn_scalar", 256, 1e-3, 1e6));
    const bool caps = name == "Gemma2ForCausalLM";
    model.attention_logit_cap = config.real(
        "attn_logit_softcapping", caps && !config.json().contains("attn_logit_softcapping") ? 50 : 0, 0, 1e6);
    model.final_logit_cap =
        config.real("final_logit_softcapping",
                    caps && !config.json().contains("final_logit_softcapping") ? 30 : 0, 0, 1e6);
  }
  read_layers(config, model);
  read_rope(config, model);
  read_dual_chunk(config, model);
  read_moe(config, model);
  read_eos(config, model);
}

}  // namespace tpsim::rank
