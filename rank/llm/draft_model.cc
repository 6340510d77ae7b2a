#include "rank/llm/draft_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/config/catalogue_models.h"
#include "rank/config/config_reader.h"
#include "rank/config/families.h"
#include "rank/llm/layers.h"

namespace tpsim::rank {
namespace {

constexpr const char* kFlag = "--speculative-draft-model-path";

// An architecture that is such a head.
std::string_view example_of(DraftHead head) {
  for (const ModelFamily* family : model_families()) {
    for (const Architecture& row : family->architectures)
      if (row.facts.draft_head == head) return row.name;
  }
  return "";
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
  if (layer.is_compressed()) {  // a window alone (models/deepseek_v4_nextn.py)
    layer.layers.front().compress_ratio = layer.attention.front().compress_ratio = 0;
    layer.layers.front().indexer = layer.attention.front().indexer = false;
    layer.indexer.num_layers = layer.compressed.num_hash_layers = 0;
  }
  if (layer.is_sparse()) {  // an indexer of its own, whatever the target's layers share
    layer.indexer.num_layers = 1;
    layer.layers.front().indexer = true;
    layer.attention.front().indexer = true;
  }
  return layer;
}

// A layer for the next token that was published by itself ("lmsys/DeepSeek-V3-NextN") is that of its model.
std::string model_of_next_layer(const std::string& path) {
  constexpr std::string_view kPublisher = "lmsys/", kEnd = "-NextN";
  if (!path.starts_with(kPublisher) || !path.ends_with(kEnd)) return path;
  return path.substr(kPublisher.size(), path.size() - kPublisher.size() - kEnd.size());
}

// What cannot be read is said of the flag that named it.
ModelConfig load_draft_config(const std::string& path) {
  constexpr std::string_view kOther = "--model-path";
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (!exists) {
    if (std::optional<ModelConfig> known = catalogue_draft(path)) return *std::move(known);
  }
  try {
    return load_model_config(exists ? path : model_of_next_layer(path));
  } catch (const UserError& error) {
    const std::string_view sentence = error.what();
    if (!sentence.starts_with(kOther)) throw;
    throw UserError(std::string(kFlag) + std::string(sentence.substr(kOther.size())));
  }
}

// Where the catalogue has heads for `target`: which.
std::string known_heads(const ModelConfig& target) {
  const std::vector<std::string> ids = catalogue_drafts_for(target.name);
  return ids.empty() ? "" : fmt::format("; known for it: {}", fmt::join(ids, ", "));
}

// models/llama_eagle3.py.
void read_eagle3(const std::string& path, const ModelConfig& target, DraftModel& draft) {
  namespace fs = std::filesystem;
  fs::path file = path;
  std::error_code error;
  if (fs::is_directory(file, error)) file /= "config.json";
  std::ifstream stream(file);
  Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  // The catalogue's are no files; they name no layers, and a head of their own where vocabularies differ.
  if (!json.is_object()) json = Json::object();
  const ConfigReader config(json, file.string());
  Json nested = json.value("eagle_config", Json());
  if (!nested.is_object()) nested = Json::object();
  const ConfigReader eagle(nested, file.string() + " eagle_config");
  draft.own_head = config.has("draft_vocab_size") || draft.config.vocab_size != target.vocab_size;
  draft.norm_output = config.flag("norm_output", false);
  const auto either = [&](const char* key) { return config.flag(key, false) || eagle.flag(key, false); };
  if (config.flag("tie_word_embeddings", false)) draft.not_computed = "tie_word_embeddings";
  if (either("norm_before_fc")) draft.not_computed = "norm_before_fc";
  if (config.has("fc_norm") && json.at("fc_norm") != false) draft.not_computed = "fc_norm";
  if (config.flag("use_aux_norm", false)) draft.not_computed = "use_aux_norm";
  if (!eagle.flag("use_aux_hidden_state", true)) draft.not_computed = "use_aux_hidden_state";
  std::set<std::int64_t> layers = {2, target.num_layers / 2, std::int64_t{target.num_layers} - 3};
  const char* const key = "eagle_aux_hidden_state_layer_ids";
  for (const Json* where : {&json, &nested}) {
    if (!where->contains(key) || !where->at(key).is_array()) continue;
    layers.clear();
    for (const Json& id : where->at(key)) {
      if (!id.is_number_integer())
        throw_user_error("{}: key \"{}\" must be whole numbers", file.string(), key);
      layers.insert(id.get<std::int64_t>() + 1);
    }
  }
  for (const std::int64_t layer : layers) {
    if (layer >= 0 && layer < target.num_layers)
      draft.hidden_layers.push_back(static_cast<std::uint32_t>(layer));
  }
}

}  // namespace

bool has_next_layer(const ModelConfig& model) {
  return model.num_nextn_predict_layers != 0 && model.facts.next_layer;
}

std::uint32_t DraftModel::joined(bool extends) const {
  switch (kind) {
    case DraftKind::kEagle:
    case DraftKind::kNextN:
      return 2;
    case DraftKind::kEagle3:
      return extends ? (hidden_layers.empty() ? 3U : static_cast<std::uint32_t>(hidden_layers.size())) : 0;
    case DraftKind::kModel:
      break;
  }
  return 0;
}

DraftModel load_draft_model(const std::string& algorithm, const std::string& path,
                            const ModelConfig& target) {
  DraftModel draft;
  if (path.empty()) {
    if (algorithm != "EAGLE" || !has_next_layer(target))
      throw_user_error("{}: is required by --speculative-algorithm {}, for {} brings no layer that drafts{}",
                       kFlag, algorithm, target.name, known_heads(target));
    draft.kind = DraftKind::kNextN;
    draft.config = next_layer(target);
    draft.layer_of_target = target.num_layers;
    return draft;
  }
  draft.config = load_draft_config(path);
  const std::string& architecture = draft.config.architecture;
  const bool head = draft.config.facts.draft_head != DraftHead::kNone;
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
  const DraftHead wanted = algorithm == "EAGLE3" ? DraftHead::kEagle3 : DraftHead::kEagle;
  if (algorithm == "EAGLE" && has_next_layer(draft.config) &&
      draft.config.hidden_size == target.hidden_size && draft.config.vocab_size == target.vocab_size) {
    draft.kind = DraftKind::kNextN;
    draft.layer_of_target = draft.config.num_layers;
    draft.config = next_layer(draft.config);
    return draft;
  }
  if (draft.config.facts.draft_head != wanted)
    throw_user_error(
        "{} {}: is a {}, --speculative-algorithm {} takes an architecture that ends with {}, for example {}",
        kFlag, path, architecture, algorithm, wanted == DraftHead::kEagle3 ? "Eagle3" : "Eagle",
        example_of(wanted));
  if (draft.config.hidden_size != target.hidden_size)
    throw_user_error("{} {}: its hidden size is {} and that of {} {}; a head needs the same", kFlag, path,
                     draft.config.hidden_size, target.name, target.hidden_size);
  draft.kind = algorithm == "EAGLE3" ? DraftKind::kEagle3 : DraftKind::kEagle;
  if (draft.kind == DraftKind::kEagle3) read_eagle3(path, target, draft);
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
