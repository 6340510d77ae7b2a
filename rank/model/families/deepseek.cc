// DeepSeek V2 and V3, and GLM-5: latent attention, and experts behind the first dense layers. V3.2 and GLM-5
// attend the tokens that an indexer chooses; GLM-5 has layers that take the choice of the layer before them.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  const char* experts = config.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  if (!config.has(experts)) return;  // dense after all
  moe.num_experts = config.number(experts, 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.has("n_shared_experts") ? config.number("n_shared_experts", 0, 64) : 0;
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 0, 1e6);
  moe.normalize_weights = config.flag("norm_topk_prob", false);
  const bool v2 = model.architecture == "DeepseekV2ForCausalLM";
  moe.scoring = v2 ? ExpertScoring::kSoftmaxThenTopK : ExpertScoring::kSigmoid;
  moe.group_score_top2 = !v2;
  if (!v2 || config.text("topk_method", "greedy") == "group_limited_greedy")
    read_expert_groups(config, model);
  const std::uint32_t dense = config.number_or("first_k_dense_replace", 0, 0);
  const std::uint32_t frequency = config.number_or("moe_layer_freq", 1);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = i >= dense && i % frequency == 0;
}

bool is_sparse(const ModelConfig& model) {
  return model.architecture == "DeepseekV32ForCausalLM" || model.architecture == "GlmMoeDsaForCausalLM";
}

// Whether layer `i` takes the selection of the layer before it: SGLang's dsa_layer_skips_topk.
bool shares_selection(const ConfigReader& config, const ModelConfig& model, std::uint32_t i) {
  const auto word_of = [&](const char* key, std::string_view shared, std::string_view own) {
    const Json& list = config.json()[key];
    const bool text = list.is_string();
    const std::size_t size = text ? list.get<std::string>().size() : list.is_array() ? list.size() : 0;
    if (size < model.num_layers)
      throw_user_error("{}: key \"{}\" has {} entries, but num_hidden_layers is {}", config.where(), key,
                       size, model.num_layers);
    const std::string word = text                  ? list.get<std::string>().substr(i, 1)
                             : list[i].is_string() ? list[i].get<std::string>()
                                                   : std::string();
    if (word != shared && word != own)
      throw_user_error("{}: key \"{}\" may hold {} and {} only", config.where(), key, own, shared);
    return word == shared;
  };
  if (config.has("indexer_types")) return word_of("indexer_types", "shared", "full");
  if (config.has("index_topk_pattern")) return word_of("index_topk_pattern", "S", "F");
  const std::uint32_t frequency = config.number_or("index_topk_freq", 1);
  const std::uint32_t offset = config.number_or("index_skip_topk_offset", 2);
  return i + 1 > offset && (i + 1 - offset) % frequency != 0;
}

// REQUIRES: layers, ropes, read_mla().
void read_indexer(const ConfigReader& config, ModelConfig& model) {
  IndexerConfig& indexer = model.indexer;
  indexer.num_heads = config.number("index_n_heads", 1, 1024);
  indexer.head_dim = config.number("index_head_dim", 2, 1024);
  indexer.top_k = config.number("index_topk", 1);
  if (model.mla.q_lora_rank == 0)
    throw_user_error("{}: key \"q_lora_rank\" is missing, which the indexer's queries come from",
                     config.where());
  if (indexer.head_dim < model.mla.qk_rope_head_dim)
    throw_user_error("{}: key \"index_head_dim\" is {}, less than the {} of qk_rope_head_dim", config.where(),
                     indexer.head_dim, model.mla.qk_rope_head_dim);
  for (std::uint32_t i = 0; i < model.num_layers; ++i)
    model.layers[i].indexer = !shares_selection(config, model, i);
  if (!model.layers.front().indexer)
    throw_user_error("{}: the first layer has no indexer, and none before it to take tokens from",
                     config.where());
  RopeConfig rope = model.ropes.front();
  rope.interleaved = config.flag("indexer_rope_interleave", model.architecture == "GlmMoeDsaForCausalLM");
  if (rope == model.ropes.front()) return;
  indexer.rope = static_cast<std::uint32_t>(model.ropes.size());
  model.ropes.push_back(rope);
}

void read(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  read_mla(config, model);
  if (is_sparse(model)) {
    model.layers.assign(model.num_layers, {});
  } else {
    read_layers(config, model);
  }
  read_mla_rope(config, model);
  if (is_sparse(model)) read_indexer(config, model);
  read_experts(config, model);
}

constexpr std::array<std::string_view, 4> kArchitectures = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
                                                            "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"};

}  // namespace

extern const ModelFamily kDeepseekFamily;
const ModelFamily kDeepseekFamily = {kArchitectures, read};

}  // namespace tpsim::rank
