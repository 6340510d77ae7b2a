#include "rank/model/draft_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/error.h"
#include "rank/catalogue/catalogue.h"
#include "rank/model/layers.h"

namespace tpsim::rank {
namespace {

constexpr const char* kFlag = "--speculative-draft-model-path";

// Checkpoints that hold a layer for the next token (_config_draft_model of SGLang's configs/model_config.py;
// those that tpsim knows).
constexpr std::array<std::string_view, 9> kWithNextLayer = {"DeepseekV3ForCausalLM",
                                                            "DeepseekV32ForCausalLM",
                                                            "Glm4MoeForCausalLM",
                                                            "Glm4MoeLiteForCausalLM",
                                                            "GlmMoeDsaForCausalLM",
                                                            "Qwen3NextForCausalLM",
                                                            "Qwen3_5MoeForCausalLM",
                                                            "Qwen3_5ForConditionalGeneration",
                                                            "Qwen3_5MoeForConditionalGeneration"};

bool has_next_layer(const ModelConfig& model) {
  return model.num_nextn_predict_layers != 0 &&
         std::find(kWithNextLayer.begin(), kWithNextLayer.end(), model.architecture) != kWithNextLayer.end();
}

// The target's last layer alone. Of models with gated delta-nets that one has attention, as the layer for the
// next token has (models/qwen3_next_mtp.py, full_attention_interval 1).
ModelConfig next_layer(const ModelConfig& target) {
  ModelConfig layer = target;
  layer.name = target.name + " (next token)";
  layer.num_layers = 1;
  layer.layers.assign(1, target.layers.back());
  layer.layers.front().kv_layer = 0;
  layer.layers.front().index_layer = 0;
  layer.linear = {};
  layer.vision = {};
  // Checkpoints in NVFP4 keep it in 16 bit (models/deepseek_nextn.py, glm4_moe_nextn.py, qwen3_5_mtp.py).
  if (layer.quantization.method == "modelopt_fp4") layer.quantization = {};
  const AttentionKind kind = target.attention.at(target.layers.back().attention);
  layer.layers.front().attention = 0;
  layer.attention.assign(1, kind);
  layer.attention.front().num_layers = 1;
  layer.moe.num_layers = std::min(layer.moe.num_layers, 1U);
  if (layer.is_sparse()) {  // an indexer of its own, whatever the target's layers share
    layer.indexer.num_layers = 1;
    layer.layers.front().indexer = true;
    layer.attention.front().indexer = true;
  }
  return layer;
}

}  // namespace

std::uint32_t DraftModel::joined(bool extends) const {
  switch (kind) {
    case DraftKind::kEagle:
    case DraftKind::kNextN:
      return 2;
    case DraftKind::kEagle3:
      return extends ? 3 : 0;
    case DraftKind::kModel:
      break;
  }
  return 0;
}

namespace {

// Published heads, by their Hugging Face ids in small letters.
struct PublishedHead {
  std::string_view id, name;
};
constexpr PublishedHead kPublishedHeads[] = {
    {"yuhuili/eagle3-llama3.1-instruct-8b", "eagle3-llama-3.1-8b"},
    {"lmsys/sglang-eagle3-llama3.1-instruct-8b", "eagle3-llama-3.1-8b"},
    {"jamesliu1/sglang-eagle3-llama-3.1-instruct-8b", "eagle3-llama-3.1-8b"},
    {"lmsys/eagle3-gpt-oss-120b-bf16", "eagle3-gpt-oss-120b"},
    {"aq-medai/kimi-k2-instruct-eagle3", "eagle3-kimi-k2"},
};

// A head of the catalogue by its name or id; a layer for the next token that was published by itself
// (lmsys/DeepSeek-V3-NextN) is that of its model.
std::optional<ModelConfig> published_draft(const std::string& path) {
  std::string name = path;
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const PublishedHead& head : kPublishedHeads) {
    if (name == head.id) name = head.name;
  }
  if (const auto text = catalogue::find("drafts", name)) {
    ModelConfig config = parse_model_config(std::string(*text), name);
    config.name = name;
    return config;
  }
  constexpr std::string_view kNextN = "-nextn";
  constexpr std::string_view kPublisher = "lmsys/";
  if (!name.starts_with(kPublisher) || !name.ends_with(kNextN)) return std::nullopt;
  return load_model_config(name.substr(kPublisher.size(), name.size() - kPublisher.size() - kNextN.size()));
}

// What cannot be read is said of the flag that named it.
ModelConfig load_draft_config(const std::string& path) {
  constexpr std::string_view kOther = "--model-path";
  std::error_code error;
  try {
    if (!std::filesystem::exists(path, error)) {
      if (std::optional<ModelConfig> head = published_draft(path)) return *std::move(head);
    }
    return load_model_config(path);
  } catch (const UserError& error) {
    const std::string_view sentence = error.what();
    if (!sentence.starts_with(kOther)) throw;
    throw UserError(std::string(kFlag) + std::string(sentence.substr(kOther.size())));
  }
}

}  // namespace

DraftModel load_draft_model(const std::string& algorithm, const std::string& path,
                            const ModelConfig& target) {
  DraftModel draft;
  if (path.empty()) {
    if (algorithm != "EAGLE" || !has_next_layer(target))
      throw_user_error("{}: is required by --speculative-algorithm {}, for {} brings no {} that drafts",
                       kFlag, algorithm, target.name, algorithm == "EAGLE" ? "layer" : "model");
    draft.kind = DraftKind::kNextN;
    draft.config = next_layer(target);
    return draft;
  }
  draft.config = load_draft_config(path);
  const std::string& architecture = draft.config.architecture;
  const bool head = architecture.ends_with("Eagle") || architecture.ends_with("Eagle3");
  if (algorithm == "STANDALONE") {
    if (head)
      throw_user_error(
          "{} {}: {} is a head that needs its target's hidden states; use a model, or "
          "--speculative-algorithm EAGLE",
          kFlag, path, architecture);
    if (draft.config.is_hybrid_linear())
      throw_user_error("{} {}: drafting with gated delta-net layers is not simulated; use another model",
                       kFlag, path);
    // Its tokens are the target's.
    if (draft.config.vocab_size != target.vocab_size)
      throw_user_error("{} {}: has {} tokens in its vocabulary and {} has {}; they must be the same", kFlag,
                       path, draft.config.vocab_size, target.name, target.vocab_size);
    return draft;
  }
  const std::string wanted = algorithm == "EAGLE3" ? "Eagle3" : "Eagle";
  if (algorithm == "EAGLE" && has_next_layer(draft.config) &&
      draft.config.hidden_size == target.hidden_size && draft.config.vocab_size == target.vocab_size) {
    draft.kind = DraftKind::kNextN;
    draft.config = next_layer(draft.config);
    return draft;
  }
  if (!architecture.ends_with(wanted))
    throw_user_error(
        "{} {}: is a {}, --speculative-algorithm {} takes an architecture that ends with {}, for "
        "example LlamaForCausalLM{}",
        kFlag, path, architecture, algorithm, wanted, wanted);
  if (draft.config.hidden_size != target.hidden_size)
    throw_user_error("{} {}: its hidden size is {} and that of {} {}; a head needs the same", kFlag, path,
                     draft.config.hidden_size, target.name, target.hidden_size);
  draft.kind = algorithm == "EAGLE3" ? DraftKind::kEagle3 : DraftKind::kEagle;
  return draft;
}

std::uint64_t draft_weight_bytes(const DraftModel& draft, const Shard& shard) {
  std::uint64_t bytes = 0;
  for (const WeightSpec& weight : weight_list(draft.config, shard)) {
    const bool embedding = weight.role == WeightRole::kEmbedding;
    const bool shared_head = weight.part == ModelPart::kHead && draft.kind != DraftKind::kEagle3;
    if (weight.tied || (draft.is_head() && (embedding || shared_head))) continue;
    std::uint64_t one = weight.format.bytes(weight.n, weight.k) + weight.bias * draft.config.weight_bytes;
    if (weight.name == "qkv_proj" && draft.wide_qkv()) one *= 2;
    bytes += one * weight.copies();
  }
  const std::uint64_t hidden = draft.config.hidden_size;
  return bytes + draft.joined(/*extends=*/true) * hidden * hidden * draft.config.weight_bytes;
}

}  // namespace tpsim::rank
