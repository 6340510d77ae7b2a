// MiMo V2 and V2.5: windows of 128 tokens in five of six layers, with attention sinks and twice the keys,
// values narrower than keys, a third of each head rotated; experts without shared ones after a dense layer.
// Its layers for the next token, which have windows, too, and draft one after the other, are not simulated.
#include <array>
#include <string>
#include <vector>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// Of each layer, whether its kind is 1 and not 0 (hybrid_layer_pattern, moe_layer_freq).
std::vector<std::uint32_t> read_pattern(const ConfigReader& config, const char* key, std::uint32_t layers) {
  const std::vector<std::uint32_t> pattern = read_numbers(config, key, 2);
  if (pattern.size() != layers)
    throw_user_error("{}: key \"{}\" has {} entries, but num_hidden_layers is {}", config.where(), key,
                     pattern.size(), layers);
  return pattern;
}

AttentionHeads read_mimo_heads(const ConfigReader& config, const AttentionHeads& otherwise,
                               const std::string& prefix) {
  const auto read = [&](const char* key, std::uint32_t value) {
    return config.number_or((prefix + key).c_str(), value);
  };
  AttentionHeads heads;
  heads.num_heads = read("num_attention_heads", otherwise.num_heads);
  heads.num_kv_heads = read("num_key_value_heads", otherwise.num_kv_heads);
  heads.head_dim = read("head_dim", otherwise.head_dim);
  heads.v_head_dim = read("v_head_dim", heads.head_dim);
  if (heads.num_heads % heads.num_kv_heads != 0 || heads.head_dim > 1024 || heads.head_dim % 2 != 0 ||
      heads.v_head_dim > heads.head_dim)
    throw_user_error(
        "{}: {}num_key_value_heads {} must divide {}num_attention_heads {}, {}head_dim {} be even and at "
        "most 1024, and {}v_head_dim {} not be more",
        config.where(), prefix, heads.num_kv_heads, prefix, heads.num_heads, prefix, heads.head_dim, prefix,
        heads.v_head_dim);
  return heads;
}

void read_mimo_v2(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  model.qkv_bias = config.flag("attention_bias", false);
  model.rms_norm_eps = config.real("layernorm_epsilon", 1e-5, 0, 1);
  model.attention_sinks =
      config.flag("add_swa_attention_sink_bias", false) || config.flag("add_full_attention_sink_bias", false);
  model.sinks_in_windows = !config.flag("add_full_attention_sink_bias", false);
  model.value_scale =
      config.has("attention_value_scale") ? config.real("attention_value_scale", 1, 1e-6, 1e6) : 1;
  model.names.renamed = {{"self_attn.sinks", "self_attn.attention_sink_bias"}};
  model.layers.assign(model.num_layers, {});
  // sliding_window_size is that many tokens before a query, and the query.
  config.has("sliding_window");        // beside it Transformers writes the same
  config.has("attention_chunk_size");  // as the window; SGLang 0.5.23's class does not read it
  const std::uint32_t window = config.has("sliding_window_size") ? config.number("sliding_window_size") + 1
                                                                 : config.number_or("sliding_window", 129, 2);
  const AttentionHeads of_all =
      read_mimo_heads(config, {model.num_attention_heads, model.num_key_value_heads, model.head_dim}, "");
  const AttentionHeads of_windows = read_mimo_heads(config, of_all, "swa_");
  const std::vector<std::uint32_t> slides = read_pattern(config, "hybrid_layer_pattern", model.num_layers);
  const std::vector<std::uint32_t> sparse = read_pattern(config, "moe_layer_freq", model.num_layers);
  RopeConfig rope_of_all, rope_of_windows;
  rope_of_all.theta = config.real("rope_theta", 5e6, 1, 1e12);
  rope_of_windows.theta = config.real("swa_rope_theta", 1e4, 1, 1e12);
  rope_of_all.partial_rotary_factor = rope_of_windows.partial_rotary_factor =
      config.real("partial_rotary_factor", 0.334, 1e-3, 1);
  model.ropes = {rope_of_all, rope_of_windows};
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("n_routed_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = config.flag("norm_topk_prob", true);
  if (config.has("n_shared_experts") && config.number("n_shared_experts", 0) > 0)
    throw_user_error("{}: key \"n_shared_experts\" must be 0: SGLang's {} has no shared experts",
                     config.where(), model.architecture);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    LayerConfig& layer = model.layers[i];
    layer.heads = slides[i] == 1 ? of_windows : of_all;
    layer.sliding_window = slides[i] == 1 ? window : 0;
    layer.rope = slides[i];
    layer.moe = sparse[i] == 1;
  }
  model.swa_pool_window = window - 1;  // the class says nothing else (resolve_sliding_window_size)
  const std::string layout = config.text("attention_projection_layout", "split");
  if (layout != "split" && layout != "fused_qkv")
    throw_user_error("{}: key \"attention_projection_layout\" is \"{}\"; it must be split or fused_qkv",
                     config.where(), layout.substr(0, 40));
  if (layout == "fused_qkv") {
    model.fused_qkv_ranks = model.num_key_value_heads;
    model.facts.priced_only = true;
  }
}

constexpr ArchitectureFacts kMimoFacts = {.data_parallel_attention = true,
                                          .deepep = true,
                                          .pipeline = true,
                                          .trtllm_experts = TrtllmExperts::kFp8OrNvfp4,
                                          .biased_grouped_topk = true,
                                          .fp32_router = 1};
constexpr std::array<Architecture, 2> kMimoV2Architectures = {{
    {.name = "MiMoV2FlashForCausalLM", .facts = kMimoFacts},
    {.name = "MiMoV2ForCausalLM", .facts = with_remote_code(kMimoFacts)},
}};

}  // namespace

extern const ModelFamily kMimoV2Family;
const ModelFamily kMimoV2Family = {kMimoV2Architectures, read_mimo_v2};

}  // namespace tpsim::rank
