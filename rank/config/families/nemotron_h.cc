// Nemotron-H (Nemotron 3 Nano and Super): blocks of one part each, Mamba 2, attention without rotation, an
// MLP or experts, none of which has a gate. A block that mixes tokens and the MLP or the experts behind it
// are one layer here: two norms and two sums over ranks, as in other models; one without them is bare.
#include <array>
#include <string>
#include <string_view>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// One letter a block: M, *, E or -.
std::string read_blocks(const ConfigReader& config) {
  std::string blocks;
  if (config.has("layers_block_type")) {
    const Json& list = config.json()["layers_block_type"];
    constexpr std::array<std::pair<std::string_view, char>, 6> kNames = {{{"mamba", 'M'},
                                                                          {"linear_attention", 'M'},
                                                                          {"attention", '*'},
                                                                          {"full_attention", '*'},
                                                                          {"moe", 'E'},
                                                                          {"mlp", '-'}}};
    for (const Json& entry : list) {
      for (const auto& [name, letter] : kNames)
        if (entry == name) blocks += letter;
    }
    if (!list.is_array() || blocks.size() != list.size())
      throw_user_error("{}: key \"layers_block_type\" may hold mamba, attention, moe and mlp only",
                       config.where());
  } else {
    blocks = config.text("hybrid_override_pattern", "");
  }
  if (blocks.empty() || blocks.size() > 1000 || blocks.find_first_not_of("M*E-") != std::string::npos)
    throw_user_error("{}: key \"hybrid_override_pattern\" must name blocks by M, *, E and -", config.where());
  return blocks;
}

void read_nemotron_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("n_routed_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.latent_size = config.number_or("moe_latent_size", 0, 0);
  moe.num_groups = config.number_or("n_group", 1);
  moe.topk_groups = config.number_or("topk_group", 1);
  moe.group_score_top2 = true;
  if (moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups)
    throw_user_error("{}: n_group {} and topk_group {} do not divide {} experts into groups", config.where(),
                     moe.num_groups, moe.topk_groups, moe.num_experts);
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = config.flag("norm_topk_prob", true);
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 1e-3, 1e3);
  const std::uint32_t shared = config.number_or("n_shared_experts", 0, 0) *
                               config.number_or("moe_shared_expert_intermediate_size", moe.intermediate_size);
  if (shared % moe.intermediate_size != 0)
    throw_user_error("{}: shared experts of {} elements are not a multiple of moe_intermediate_size {}",
                     config.where(), shared, moe.intermediate_size);
  moe.num_shared_experts = shared / moe.intermediate_size;
}

void read_nemotron_h(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.rms_norm_eps = config.real("layer_norm_epsilon", 1e-5, 0, 1);
  model.ungated_mlp = true;
  if (const std::string act = config.text("mlp_hidden_act", "relu2"); act != "relu2")
    throw_user_error("{}: key \"mlp_hidden_act\" is \"{}\"; it must be relu2", config.where(),
                     act.substr(0, 40));
  model.layers.clear();
  model.names.blocks = true;
  model.names.renamed = {{"model.embed_tokens", "backbone.embeddings"},
                         {"model.norm", "backbone.norm_f"},
                         {"model.layers.", "backbone.layers."},
                         {".input_layernorm", ".norm"},
                         {".post_attention_layernorm", ".norm"},
                         {".self_attn.", ".mixer."},
                         {".mlp.", ".mixer."}};
  bool experts = false;
  std::uint32_t place = 0;
  for (const char block : read_blocks(config)) {
    const std::uint32_t at = place++;
    const bool mixes = block == 'M' || block == '*';
    if (mixes) {
      LayerConfig& layer = model.layers.emplace_back();
      layer.linear = block == 'M';
      layer.bare = true;
      layer.block = at;
      layer.rope = LayerConfig::kNoRope;
      model.linear.num_layers += layer.linear ? 1 : 0;
      continue;
    }
    if (model.layers.empty() || !model.layers.back().bare)
      throw_user_error("{}: an MLP or experts ({}) must stand behind a block of Mamba or attention",
                       config.where(), block);
    model.layers.back().bare = false;
    model.layers.back().moe = block == 'E';
    experts = experts || block == 'E';
  }
  model.num_layers = static_cast<std::uint32_t>(model.layers.size());
  if (model.linear.num_layers == 0 || model.linear.num_layers == model.num_layers)
    throw_user_error("{}: blocks must be of both kinds, Mamba (M) and attention (*)", config.where());
  model.ropes = {RopeConfig{}};
  read_mamba2(config, model);
  if (experts) read_nemotron_experts(config, model);
}

constexpr std::array<Architecture, 1> kNemotronHArchitectures = {{
    {.name = "NemotronHForCausalLM",
     .facts = {.trtllm_experts = TrtllmExperts::k16BitFp8OrNvfp4,
               .biased_grouped_topk = true,
               .second_stream = 1,
               .fp32_router = 1}},
}};

}  // namespace

extern const ModelFamily kNemotronHFamily;
const ModelFamily kNemotronHFamily = {kNemotronHArchitectures, read_nemotron_h};

}  // namespace tpsim::rank
