// DeepSeek's first experts behind plain heads (the text model of DeepSeek-OCR), V2, V3 and R1, Kimi K2 (which
// calls itself V3; K2.5 and K2.6 with an encoder before it), GLM-4.7-Flash, V3.2 and GLM-5: latent attention,
// and experts after the first dense layers. V3.2 and GLM-5 attend to the tokens that an indexer chooses;
// GLM-5's successors have layers that take the choice of the layer before them.
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

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

void read_deepseek(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  if (model.facts.priced_only && !config.flag("use_mla", false)) {
    model.head_dim = model.hidden_size / model.num_attention_heads;
    model.attention_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
    read_layers(config, model);
    read_rope(config, model);
    read_grouped_experts(config, model, {.scoring = ExpertScoring::kSoftmaxThenTopK});
    return;
  }
  const bool glm = model.architecture == "GlmMoeDsaForCausalLM";
  if (glm) model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  read_mla(config, model);
  if (is_sparse(model)) {
    model.layers.assign(model.num_layers, {});
  } else {
    read_layers(config, model);
  }
  read_mla_rope(config, model);
  if (is_sparse(model)) read_indexer(config, model);
  const bool v2 = model.architecture == "DeepseekV2ForCausalLM";
  read_grouped_experts(config, model,
                       {.scoring = v2 ? ExpertScoring::kSoftmaxThenTopK : ExpertScoring::kSigmoid,
                        .normalize_weights = !v2 && model.architecture != "DeepseekV3ForCausalLM"});
  // SGLang fuses the shared expert of V3 and R1, and of GLM-5, whose class asks for the same numbers.
  MoeConfig& moe = model.moe;
  const bool v3 = model.architecture == "DeepseekV3ForCausalLM";
  const bool lite = model.architecture == "Glm4MoeLiteForCausalLM";  // whatever the number of its experts
  if ((lite || ((glm || v3) && moe.num_experts == 256)) && moe.num_shared_experts == 1)
    moe.num_fused_shared_experts = 1;
}

constexpr ArchitectureFacts kDeepseekFacts = {.data_parallel_attention = true,
                                              .deepep = true,
                                              .pipeline = true,
                                              .next_layer = true,
                                              .trtllm_experts = TrtllmExperts::k16BitFp8OrNvfp4,
                                              .biased_grouped_topk = true,
                                              .second_stream = 1};
constexpr ArchitectureFacts facts_of(std::uint8_t fuses_all_reduces,
                                     bool ArchitectureFacts::*fact = nullptr) {
  ArchitectureFacts facts = kDeepseekFacts;
  facts.fuses_all_reduces = fuses_all_reduces;
  if (fact != nullptr) facts.*fact = true;
  return facts;
}
// models/glm4_moe_lite.py: Glm4MoeLiteGate.
constexpr ArchitectureFacts facts_of_lite() {
  ArchitectureFacts facts = facts_of(2);
  facts.fp32_router = facts.second_stream = 2;
  return facts;
}
constexpr std::array<Architecture, 8> kDeepseekArchitectures = {{
    {.name = "DeepseekV2ForCausalLM",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .pipeline = true,
               .grouped_topk = true,
               .second_stream = 1}},
    {.name = "DeepseekV3ForCausalLM", .facts = facts_of(1, &ArchitectureFacts::may_prefill_eagerly)},
    {.name = "DeepseekV32ForCausalLM", .facts = facts_of(4)},
    {.name = "GlmMoeDsaForCausalLM", .facts = facts_of(4, &ArchitectureFacts::glm_sparse)},
    {.name = "Glm4MoeLiteForCausalLM", .facts = facts_of_lite()},
    {.name = "KimiK25ForConditionalGeneration",
     .facts = facts_of(3, &ArchitectureFacts::may_prefill_eagerly)},
    {.name = "DeepseekForCausalLM", .facts = {.priced_only = true, .remote_code = true}},
    {.name = "DeepseekOCRForCausalLM", .facts = {.eager_prefill = true, .priced_only = true}},
}};

}  // namespace

extern const ModelFamily kDeepseekFamily;
const ModelFamily kDeepseekFamily = {kDeepseekArchitectures, read_deepseek};

}  // namespace tpsim::rank
