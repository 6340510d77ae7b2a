// DeepSeek V4: attention over compressed tokens in layers of three kinds, hyper-connections, and experts in
// every layer, which the first layers choose by a table of token ids.
//
// Source: SGLang 0.5.23, configs/deepseek_v4.py, models/deepseek_v4.py and arg_groups/model_overrides and
// deepseek_v4_hook.py; Transformers' configuration_deepseek_v4.py.
#include <array>
#include <string>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// Of each layer "compress_ratios", which may go on with the layers for the next token.
void read_compressed_layers(const ConfigReader& config, ModelConfig& model) {
  const std::uint32_t window = config.number("sliding_window", 1);
  const Json& ratios = config.has("compress_ratios") ? config.json()["compress_ratios"] : Json();
  if (!ratios.is_array() || ratios.size() < model.num_layers)
    throw_user_error("{}: key \"compress_ratios\" must be a list of a number for each of {} layers",
                     config.where(), model.num_layers);
  model.layers.assign(model.num_layers, {});
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (ratios[i] != 0 && ratios[i] != 4 && ratios[i] != 128)
      throw_user_error("{}: key \"compress_ratios\" says {} of layer {}; SGLang has 0, 4 and 128",
                       config.where(), ratios[i].dump(), i);
    LayerConfig& layer = model.layers[i];
    layer.sliding_window = window;
    layer.compress_ratio = ratios[i].get<std::uint32_t>();
    layer.indexer = layer.compress_ratio == 4;
    layer.moe = true;
    layer.hashed = i < model.compressed.num_hash_layers;
  }
  model.swa_pool_window = window;
}

// Layers that compress turn at a base of their own, by YaRN without its factor on cosines.
void read_two_ropes(const ConfigReader& config, ModelConfig& model) {
  Json compressed = config.has("rope_scaling") ? config.json()["rope_scaling"] : Json::object();
  if (!compressed.is_object()) throw_user_error("{}: key \"rope_scaling\" must be an object", config.where());
  compressed["rope_theta"] = config.real("compress_rope_theta", 160000, 1, 1e12);
  compressed["attention_factor"] = 1.0;
  const Json both = {{"max_position_embeddings", model.max_position_embeddings},
                     {"rope_parameters",
                      {{"full_attention", compressed},
                       {"sliding_attention", {{"rope_theta", config.real("rope_theta", 10000, 1, 1e12)}}}}}};
  read_rope(ConfigReader(both, config.where()), model,
            {.partial_rotary_factor = double(model.compressed.rope_head_dim) / model.head_dim});
  for (RopeConfig& rope : model.ropes) rope.interleaved = true;
  for (LayerConfig& layer : model.layers) layer.rope = layer.compress_ratio > 0 ? 0 : 1;
}

void read_deepseek_v4(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  if (model.num_key_value_heads != 1)
    throw_user_error("{}: key \"num_key_value_heads\" is {}; SGLang's class has one", config.where(),
                     model.num_key_value_heads);
  CompressedConfig& compressed = model.compressed;
  compressed.q_lora_rank = config.number("q_lora_rank", 1, 1U << 20);
  compressed.rope_head_dim = config.number("qk_rope_head_dim", 2, model.head_dim);
  compressed.o_groups = config.number("o_groups", 1, model.num_attention_heads);
  compressed.o_lora_rank = config.number("o_lora_rank", 1, 1U << 20);
  compressed.streams = config.number("hc_mult", 1, 64);
  compressed.sinkhorn_iters = config.number_or("hc_sinkhorn_iters", 20);
  compressed.stream_eps = config.real("hc_eps", 1e-6, 0, 1);
  compressed.num_hash_layers = config.number_or("num_hash_layers", 3, 0);
  if (model.num_attention_heads % compressed.o_groups != 0)
    throw_user_error("{}: o_groups {} does not divide num_attention_heads {}", config.where(),
                     compressed.o_groups, model.num_attention_heads);
  read_compressed_layers(config, model);
  model.indexer.num_heads = config.number("index_n_heads", 1, 1024);
  model.indexer.head_dim = config.number("index_head_dim", 2, 1024);
  model.indexer.top_k = config.number("index_topk", 1);
  if (compressed.rope_head_dim % 2 != 0 || compressed.rope_head_dim > model.indexer.head_dim)
    throw_user_error("{}: key \"qk_rope_head_dim\" is {}; it must be even and at most index_head_dim {}",
                     config.where(), compressed.rope_head_dim, model.indexer.head_dim);
  read_two_ropes(config, model);
  model.limits_gates = true;
  for (LayerConfig& layer : model.layers)
    layer.expert_limit = layer.mlp_limit = config.real("swiglu_limit", 10, 0, 1e6);
  model.attention_sinks = true;
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("n_routed_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.number_or("n_shared_experts", 1, 0);
  moe.scoring = ExpertScoring::kSqrtSoftplus;
  moe.normalize_weights = config.flag("norm_topk_prob", true);
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1.5, 1e-3, 1e3);
  if (const std::string scoring = config.text("scoring_func", "sqrtsoftplus"); scoring != "sqrtsoftplus")
    throw_user_error("{}: key \"scoring_func\" is \"{}\"; supported is sqrtsoftplus", config.where(),
                     scoring.substr(0, 40));
  model.names.renamed = {{"input_layernorm", "attn_norm"},
                         {"post_attention_layernorm", "ffn_norm"},
                         {"mlp.", "ffn."},
                         {"gate_proj.", "w1."},
                         {"up_proj.", "w3."},
                         {"down_proj.", "w2."},
                         {"e_score_correction_bias", "bias"},
                         {"embed_tokens", "embed"},
                         {"lm_head", "head"}};
}

constexpr std::array<Architecture, 1> kDeepseekV4Architectures = {{
    {.name = "DeepseekV4ForCausalLM",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .next_layer = true,
               .second_stream = 1,
               .eager_prefill = true,
               .running_requests = 256,
               .window_share = 0.1}},
}};

}  // namespace

extern const ModelFamily kDeepseekV4Family;
const ModelFamily kDeepseekV4Family = {kDeepseekV4Architectures, read_deepseek_v4};

}  // namespace tpsim::rank
