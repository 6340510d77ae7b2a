#include "rank/config/config_parts.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace tpsim::rank {
namespace {

std::vector<bool> sliding_layers(const ConfigReader& config, const ModelConfig& model, std::uint32_t window,
                                 const std::function<bool(std::uint32_t)>& slides) {
  std::vector<bool> sliding(model.num_layers, false);
  if (!config.has("layer_types")) {
    for (std::uint32_t i = 0; window > 0 && i < model.num_layers; ++i) sliding[i] = slides(i);
    return sliding;
  }
  sliding = read_kinds(config, "layer_types", model.num_layers, "full_attention", "sliding_attention");
  if (window == 0 && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) {
    throw_user_error("{}: layers use sliding_attention, but key \"sliding_window\" is missing",
                     config.where());
  }
  return sliding;
}

// n_group and topk_group.
void read_groups(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_groups = config.number_or("n_group", 1);
  moe.topk_groups = config.number_or("topk_group", 1);
  // A group whose score is the sum of its best two needs two.
  if (moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups ||
      (moe.group_score_top2 && moe.num_groups > 1 && moe.num_experts / moe.num_groups < 2)) {
    throw_user_error("{}: n_group {} and topk_group {} do not divide {} experts into groups", config.where(),
                     moe.num_groups, moe.topk_groups, moe.num_experts);
  }
  if (std::uint64_t{moe.num_experts} / moe.num_groups * moe.topk_groups < moe.top_k)
    throw_user_error("{}: {} of {} groups have fewer than num_experts_per_tok {} experts", config.where(),
                     moe.topk_groups, moe.num_groups, moe.top_k);
}

// Transformers 5 lists the layers' kinds, 4 says how many dense ones come first.
void mark_expert_layers(const ConfigReader& config, ModelConfig& model) {
  if (!config.has("mlp_layer_types")) {
    const std::uint32_t dense = config.number_or("first_k_dense_replace", 0, 0);
    const std::uint32_t frequency = config.number_or("moe_layer_freq", 1);
    for (std::uint32_t i = 0; i < model.num_layers; ++i)
      model.layers[i].moe = i >= dense && i % frequency == 0;
    return;
  }
  const std::vector<bool> sparse = read_kinds(config, "mlp_layer_types", model.num_layers, "dense", "sparse");
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = sparse[i];
}

constexpr std::uint32_t kWidestHead = 4096;

RopeType type_of(const ConfigReader& config, const ConfigReader& rope) {
  const std::string name = rope.text("rope_type", rope.text("type", "default"));
  // Text turns by its position in all three sections of Qwen-VL's rotation.
  if (name == "default" || name == "mrope") return RopeType::kDefault;
  if (name == "linear") return RopeType::kLinear;
  if (name == "dynamic") return RopeType::kDynamic;
  if (name == "llama3") return RopeType::kLlama3;
  if (name == "yarn") return RopeType::kYarn;
  if (name == "longrope" || name == "su") return RopeType::kLongRope;
  if (name == "proportional") return RopeType::kProportional;
  throw_user_error(
      "{}: rope type \"{}\" is not supported; use default, linear, dynamic, llama3, yarn, longrope or "
      "proportional",
      config.where(), name.substr(0, 40));
}

// A factor for each pair.
std::vector<double> read_factors(const ConfigReader& rope, const char* key) {
  if (!rope.has(key)) throw_user_error("{}: rope type longrope needs \"{}\"", rope.where(), key);
  std::vector<double> factors;
  for (const Json& factor : rope.json()[key]) {
    if (!factor.is_number() || !(factor.get<double>() >= 1e-3) || factor.get<double>() > 1e6)
      throw_user_error("{}: \"{}\" must hold numbers from 0.001 to 1000000", rope.where(), key);
    factors.push_back(factor.get<double>());
  }
  return factors;
}

// Its factor follows from the two lengths where the config names the shorter one (Transformers'
// _compute_longrope_parameters), and with it how far products of queries and keys grow.
void read_longrope(const ConfigReader& config, const ConfigReader& rope, RopeConfig& out) {
  const double original = out.original_max_position_embeddings;
  if (original <= 1)
    throw_user_error("{}: rope type longrope needs \"original_max_position_embeddings\"", config.where());
  out.short_factor = read_factors(rope, "short_factor");
  out.long_factor = read_factors(rope, "long_factor");
  if (out.short_factor.size() != out.long_factor.size())
    throw_user_error("{}: \"short_factor\" and \"long_factor\" must be as long", rope.where());
  if (config.has("original_max_position_embeddings") || !rope.has("factor"))
    out.factor = config.number("max_position_embeddings") / original;
  if (out.attention_factor == 0)
    out.attention_factor = out.factor <= 1 ? 1 : std::sqrt(1 + std::log(out.factor) / std::log(original));
}

void read_mrope(const ConfigReader& rope, const RopeDefaults& defaults, RopeConfig& out) {
  out.mrope_section = defaults.mrope_section;
  out.mrope_interleaved = rope.flag("mrope_interleaved", false);
  if (!rope.has("mrope_section")) return;
  const Json& list = rope.json()["mrope_section"];
  if (!list.is_array() || list.size() != out.mrope_section.size())
    throw_user_error("{}: \"mrope_section\" must be a list of three numbers", rope.where());
  for (std::size_t i = 0; i < out.mrope_section.size(); ++i) {
    if (!list[i].is_number_unsigned() || list[i].get<double>() > kWidestHead)
      throw_user_error("{}: \"mrope_section\" must hold whole numbers from 0 to {}", rope.where(),
                       kWidestHead);
    out.mrope_section[i] = list[i].get<std::uint32_t>();
  }
}

// `rope`: the object that describes one rotation; it may be empty.
RopeConfig read_one(const ConfigReader& config, const Json& object, double theta,
                    const RopeDefaults& defaults) {
  const std::optional<double>& partial = defaults.partial_rotary_factor;
  constexpr std::uint32_t kMostTokens = 1U << 28;
  if (!object.is_object()) throw_user_error("{}: rope parameters must be an object", config.where());
  const ConfigReader rope(object, config.where() + ": rope parameters");
  RopeConfig out;
  out.type = type_of(config, rope);
  out.theta = rope.real("rope_theta", theta, 1, 1e12);
  out.partial_rotary_factor =
      rope.real("partial_rotary_factor",
                partial ? config.real("partial_rotary_factor", *partial, 1e-3, 1) : 1.0, 1e-3, 1);
  if (!partial && out.partial_rotary_factor != 1) {
    throw_user_error("{}: a partial_rotary_factor other than 1 is not supported for this architecture",
                     config.where());
  }
  read_mrope(rope, defaults, out);
  if (out.type == RopeType::kDefault) return out;
  out.factor = rope.real("factor", 1, 1e-3, 1024);
  const std::uint32_t top = config.number_or("original_max_position_embeddings", 0);
  out.original_max_position_embeddings = rope.has("original_max_position_embeddings")
                                             ? rope.number("original_max_position_embeddings", 1, kMostTokens)
                                             : top;
  // DeepSeek's configs may leave the factor out: it follows from the two lengths.
  if (out.type == RopeType::kYarn && !rope.has("factor") && out.original_max_position_embeddings > 0) {
    out.factor = static_cast<double>(config.number("max_position_embeddings", 1, kMostTokens)) /
                 out.original_max_position_embeddings;
  }
  out.low_freq_factor = rope.real("low_freq_factor", 1, 1e-3, 1e6);
  out.high_freq_factor = rope.real("high_freq_factor", 4, 1e-3, 1e6);
  out.beta_fast = rope.real("beta_fast", 32, 1e-3, 1e6);
  out.beta_slow = rope.real("beta_slow", 1, 1e-3, 1e6);
  out.mscale = rope.real("mscale", 0, 0, 100);
  out.mscale_all_dim = rope.real("mscale_all_dim", 0, 0, 100);
  out.attention_factor = rope.real("attention_factor", 0, 0, 100);
  out.truncate = rope.flag("truncate", true);
  if (out.type == RopeType::kLongRope) read_longrope(config, rope, out);
  if (out.type == RopeType::kLlama3) {
    if (out.original_max_position_embeddings == 0)
      throw_user_error("{}: rope type llama3 needs \"original_max_position_embeddings\"", config.where());
    // Alike (Llama 4 Scout): nothing lies between the frequencies that are slowed and those that are not.
    if (out.high_freq_factor < out.low_freq_factor)
      throw_user_error("{}: rope's high_freq_factor must not be less than its low_freq_factor",
                       config.where());
  }
  return out;
}

}  // namespace

std::vector<bool> read_kinds(const ConfigReader& config, const char* key, std::uint32_t num_layers,
                             std::string_view no, std::string_view yes) {
  const Json& kinds = config.json()[key];
  // Layers that draft may be named behind the others (Step 3.5).
  const std::size_t all = std::size_t{num_layers} + config.number_or("num_nextn_predict_layers", 0, 0);
  if (!kinds.is_array() || (kinds.size() != num_layers && kinds.size() != all))
    throw_user_error("{}: key \"{}\" has {} entries, but num_hidden_layers is {}", config.where(), key,
                     kinds.is_array() ? kinds.size() : 0, num_layers);
  std::vector<bool> out;
  for (std::size_t i = 0; i < num_layers; ++i) {
    if (kinds[i] != no && kinds[i] != yes)
      throw_user_error("{}: key \"{}\" may hold {} and {} only", config.where(), key, no, yes);
    out.push_back(kinds[i] == yes);
  }
  return out;
}

std::vector<std::uint32_t> read_numbers(const ConfigReader& config, const char* key, std::uint32_t end,
                                        std::vector<std::uint32_t> otherwise) {
  if (!config.has(key)) return otherwise;
  const Json& list = config.json()[key];
  if (!list.is_array()) throw_user_error("{}: key \"{}\" must be a list", config.where(), key);
  std::vector<std::uint32_t> out;
  for (const Json& entry : list) {
    if (!entry.is_number_unsigned() || entry.get<double>() >= end)
      throw_user_error("{}: key \"{}\" must hold whole numbers from 0 to {}", config.where(), key, end - 1);
    out.push_back(entry.get<std::uint32_t>());
  }
  return out;
}

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

void read_grouped_experts(const ConfigReader& config, ModelConfig& model, GroupedExpertDefaults defaults) {
  MoeConfig& moe = model.moe;
  const char* experts = config.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  if (!config.has(experts)) return;  // dense after all
  moe.num_experts = config.number(experts, 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.has("n_shared_experts") ? config.number("n_shared_experts", 0, 64) : 0;
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 0, 1e6);
  moe.normalize_weights = config.flag("norm_topk_prob", defaults.normalize_weights);
  moe.scoring = defaults.scoring;
  const bool sigmoid = moe.scoring == ExpertScoring::kSigmoid;
  moe.group_score_top2 = sigmoid;
  if (sigmoid || config.text("topk_method", "greedy") == "group_limited_greedy") read_groups(config, model);
  mark_expert_layers(config, model);
}

void read_mamba2(const ConfigReader& config, ModelConfig& model) {
  constexpr std::uint32_t kMost = 1U << 12;
  LinearAttentionConfig& linear = model.linear;
  linear.kind = LinearKind::kMamba2;
  linear.num_value_heads = config.number("mamba_num_heads", 1, kMost);
  linear.value_head_dim = config.number("mamba_head_dim", 1, 1024);
  linear.num_key_heads =
      config.number(config.has("mamba_n_groups") ? "mamba_n_groups" : "n_groups", 1, kMost);
  linear.key_head_dim = config.number("ssm_state_size", 1, 1024);
  linear.conv_kernel = config.number_or(config.has("mamba_d_conv") ? "mamba_d_conv" : "conv_kernel", 4, 2);
  linear.chunk =
      config.number_or(config.has("mamba_chunk_size") ? "mamba_chunk_size" : "chunk_size", 256, 16);
  if (linear.conv_kernel > 64 || linear.chunk > 1024)
    throw_user_error("{}: a convolution over {} tokens, more than 64, or chunks of {}, more than 1024",
                     config.where(), linear.conv_kernel, linear.chunk);
  if (linear.num_value_heads % linear.num_key_heads != 0)
    throw_user_error("{}: mamba_num_heads {} is not a multiple of n_groups {}", config.where(),
                     linear.num_value_heads, linear.num_key_heads);
  linear.conv_bias = config.flag(config.has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias", true);
  if (config.text("mamba_ssm_dtype", "float32") != "float32") linear.state_bytes = 2;
}

// As SGLang 0.5.12 reads it (dual_chunk_flashattention_backend.py, rotary_embedding/factory.py).
void read_dual_chunk(const ConfigReader& config, ModelConfig& model) {
  constexpr const char* kKey = "dual_chunk_attention_config";
  if (!config.has(kKey)) return;
  const std::string where = config.where() + ": " + kKey;
  if (!config.json()[kKey].is_object()) throw_user_error("{} must be an object", where);
  if (!model.facts.dual_chunk) {
    throw_user_error(
        "{}: SGLang's {} knows no dual chunk attention (Qwen2, Qwen2-MoE and Qwen3-MoE do); leave it out",
        where, model.architecture);
  }
  const ConfigReader chunks(config.json()[kKey], where);
  constexpr std::uint32_t kMost = 1U << 28;
  if (chunks.flag("sparse_attention_enabled", chunks.has("sparse_attention_config"))) {
    throw_user_error(
        "{}: its sparse_attention_config (vertical and slash lines of attention beyond "
        "sparse_attention_threshold tokens) is not simulated; set \"sparse_attention_enabled\" to false for "
        "the dense form",
        where);
  }
  // rotary_embedding/factory.py passes on what is given, and its class has no defaults.
  DualChunkConfig& out = model.dual_chunk;
  out.chunk_size = chunks.number("chunk_size", 2, kMost);
  out.local_size = chunks.number("local_size", 0, kMost);
  if (out.local_size >= out.chunk_size)
    throw_user_error("{}: local_size {} must be less than chunk_size {}", where, out.local_size,
                     out.chunk_size);
  out.dense_said = chunks.has("sparse_attention_enabled");
  out.original_max_position_embeddings = chunks.number_or("original_max_position_embeddings", 0, 0);
  if (model.ropes.front().type != RopeType::kDefault)
    throw_user_error("{}: rope_scaling has no effect beside it in SGLang; leave one of them out", where);
  for (const LayerConfig& layer : model.layers) {
    if (layer.sliding_window > 0)
      throw_user_error("{}: layers with a sliding window cannot have it; set use_sliding_window to false",
                       where);
  }
}

void read_rope(const ConfigReader& config, ModelConfig& model, const RopeDefaults& defaults) {
  const double theta = config.real("rope_theta", defaults.theta, 1, 1e12);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json empty = Json::object();
  const Json& all = config.has(key) ? config.json()[key] : empty;
  model.ropes.clear();
  const bool nested = all.is_object() && all.contains("full_attention");
  model.ropes.push_back(read_one(config, nested ? all["full_attention"] : all, theta, defaults));
  if (nested && all.contains("sliding_attention")) {
    model.ropes.push_back(read_one(config, all["sliding_attention"], theta, defaults));
  } else if (defaults.local_theta) {
    RopeConfig of_windows;
    of_windows.theta = config.real("rope_local_base_freq", *defaults.local_theta, 1, 1e12);
    model.ropes.push_back(of_windows);
  }
  for (RopeConfig& rope : model.ropes) {
    if (rope.type == RopeType::kLongRope && rope.short_factor.size() != model.rope_dim(rope) / 2)
      throw_user_error("{}: \"short_factor\" has {} entries, and heads rotate {} pairs", config.where(),
                       rope.short_factor.size(), model.rope_dim(rope) / 2);
    const auto [time, row, column] = rope.mrope_section;
    if (!rope.has_mrope() || time + row + column == model.rope_dim(rope) / 2) continue;
    const bool said = rope.mrope_section != defaults.mrope_section;
    rope.mrope_section = {};  // heads of other sizes than the published ones: text alone
    if (said)
      throw_user_error("{}: mrope_section has {} pairs, and heads rotate {}", config.where(),
                       time + row + column, model.rope_dim(rope) / 2);
  }
  for (LayerConfig& layer : model.layers) {
    if (layer.rope == LayerConfig::kNoRope) continue;
    layer.rope = model.ropes.size() > 1 && layer.sliding_window > 0 ? 1 : 0;
  }
}

void read_mla_rope(const ConfigReader& config, ModelConfig& model) {
  // What Transformers says of the share of a head is what qk_rope_head_dim says.
  read_rope(config, model, {.partial_rotary_factor = 1.0});
  RopeConfig& rope = model.ropes.front();
  rope.partial_rotary_factor = 1;
  rope.interleaved = config.flag("rope_interleave", true);
  // DeepSeek lengthens the context in the attention's scale, too.
  if (rope.type != RopeType::kDefault && rope.mscale_all_dim > 0 && rope.factor > 1) {
    const double mscale = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
    model.attention_scale *= mscale * mscale;
  }
}

}  // namespace tpsim::rank
