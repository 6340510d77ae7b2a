// MiniMax M3: in all but the first layers attention over blocks of tokens that an indexer chooses (MSA), half
// of each head rotated, queries and keys normed by head as Gemma does, and experts with a shared one among
// them.
//
// Source: SGLang 0.5.23, models/minimax_m3.py and configs/minimax_vl.py; Transformers 5's
// configuration_minimax_m3_vl.py, whose keys a config may have, too.
#include <array>
#include <string>
#include <utility>

#include "proto/base/text.h"
#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// Which layers a list of 0 and 1 under `key` names.
std::vector<bool> named_layers(const ConfigReader& config, const char* key, std::uint32_t num_layers) {
  std::vector<bool> out(num_layers);
  const std::vector<std::uint32_t> list = read_numbers(config, key, 2);
  if (list.size() < num_layers)
    throw_user_error("{}: key \"{}\" must be a list of 0 or 1 for each of {} layers", config.where(), key,
                     num_layers);
  for (std::uint32_t i = 0; i < num_layers; ++i) out[i] = list[i] != 0;
  return out;
}

void read_chosen_blocks(const ConfigReader& config, ModelConfig& model) {
  const Json& json = config.json();
  if (!config.has("sparse_attention_config") || !json["sparse_attention_config"].is_object())
    throw_user_error("{}: key \"sparse_attention_config\" must be an object", config.where());
  const ConfigReader sparse(json["sparse_attention_config"], config.where() + ": sparse_attention_config");
  IndexerConfig& indexer = model.indexer;
  indexer.num_heads = sparse.number("sparse_num_index_heads", 1, 1024);
  indexer.head_dim = sparse.number("sparse_index_dim", 2, 1024);
  indexer.block = sparse.number("sparse_block_size", 1, 1U << 16);
  indexer.top_k = indexer.block * sparse.number("sparse_topk_blocks", 1, 1U << 12);
  indexer.local_blocks = sparse.number_or("sparse_local_block", 1, 0);
  if (sparse.number_or("sparse_init_block", 0, 0) > 0 || sparse.text("sparse_score_type", "max") != "max")
    throw_user_error(
        "{}: keys \"sparse_init_block\" and \"sparse_score_type\" must be 0 and \"max\", nothing else is "
        "simulated",
        sparse.where());
  if (indexer.num_heads != model.num_key_value_heads)
    throw_user_error(
        "{}: sparse_num_index_heads {} is not num_key_value_heads {}, and nothing else has a price",
        sparse.where(), indexer.num_heads, model.num_key_value_heads);
  const std::vector<bool> chooses = named_layers(sparse, "sparse_attention_freq", model.num_layers);
  const std::vector<bool> keys_alone = named_layers(sparse, "sparse_disable_index_value", model.num_layers);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (chooses[i] && !keys_alone[i])
      throw_user_error(
          "{}: key \"sparse_disable_index_value\" is 0 of layer {}: values of the indexer, which add to what "
          "the layer says, are not simulated",
          sparse.where(), i);
    model.layers[i].indexer = chooses[i];
  }
}

void read_minimax_m3(const ConfigReader& config, ModelConfig& model) {
  if (const std::string activation = config.text("hidden_act", "swigluoai"); activation != "swigluoai")
    throw_user_error("{}: key \"hidden_act\" must be \"swigluoai\", as the model's code has it",
                     config.where());
  model.activation = Activation::kGptOssSwiGlu;
  read_layers(config, model);
  const double rotated = config.number_or("rotary_dim", 64) / static_cast<double>(model.head_dim);
  if (rotated > 1)
    throw_user_error("{}: key \"rotary_dim\" is more than the {} elements of a head", config.where(),
                     model.head_dim);
  read_rope(config, model, {.theta = 5e6, .partial_rotary_factor = rotated});
  model.qk_norm = config.flag("use_qk_norm", false);
  if (config.text("qk_norm_type", "per_head") != "per_head")
    throw_user_error("{}: key \"qk_norm_type\" must be \"per_head\", as SGLang asks", config.where());
  model.norm_plus_one = config.flag("use_gemma_norm", false);
  read_chosen_blocks(config, model);
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = moe.num_fused_shared_experts = config.number_or("n_shared_experts", 1, 0);
  if (const std::uint32_t width = config.number_or("shared_intermediate_size", moe.intermediate_size);
      width != moe.intermediate_size)
    throw_user_error("{}: shared_intermediate_size {} is not the {} of an expert, as SGLang takes it",
                     config.where(), width, moe.intermediate_size);
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = true;
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 1e-3, 1e3);
  for (const auto& [key, value] : {std::pair("swiglu_alpha", 1.702), {"swiglu_limit", 7.0}}) {
    if (config.real(key, value, 0, 1e6) != value)
      throw_user_error("{}: key \"{}\" must be {}", config.where(), key, format_real(value));
  }
  model.names.renamed = {
      {"block_sparse_moe.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"},
      {"mlp.shared_experts.", "block_sparse_moe.shared_experts."}};
  const std::vector<bool> routes = named_layers(config, "moe_layer_freq", model.num_layers);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = routes[i];
  model.intermediate_size = config.number("dense_intermediate_size", 1, kWidestExpert);
}

constexpr ArchitectureFacts kMinimaxM3Facts = {
    .data_parallel_attention = true, .deepep = true, .pipeline = true, .second_stream = 3};
constexpr ArchitectureFacts kMinimaxM3Seeing = {.data_parallel_attention = true,
                                                .deepep = true,
                                                .pipeline = true,
                                                .second_stream = 3,
                                                .multimodal = true};
constexpr std::array<Architecture, 2> kMinimaxM3Architectures = {{
    {.name = "MiniMaxM3SparseForCausalLM", .facts = kMinimaxM3Facts},
    {.name = "MiniMaxM3SparseForConditionalGeneration", .facts = kMinimaxM3Seeing},
}};

}  // namespace

extern const ModelFamily kMinimaxM3Family;
const ModelFamily kMinimaxM3Family = {kMinimaxM3Architectures, read_minimax_m3};

}  // namespace tpsim::rank
