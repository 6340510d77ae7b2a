#include "rank/model/draft_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/model/catalogue_drafts.h"
#include "rank/model/layers.h"

namespace tpsim::rank {
namespace {

constexpr const char* kFlag = "--speculative-draft-model-path";

// Checkpoints that hold a layer for the next token (_handle_eagle_family of SGLang's
// arg_groups/speculative_hook.py; those that tpsim knows).
constexpr std::array<std::string_view, 5> kWithNextLayer = {"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
                                                            "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
                                                            "GlmMoeDsaForCausalLM"};

// The target's last layer alone.
ModelConfig next_layer(const ModelConfig& target) {
  ModelConfig layer = target;
  layer.name = target.name + " (next token)";
  layer.num_layers = 1;
  layer.layers.assign(1, target.layers.back());
  layer.layers.front().kv_layer = 0;
  layer.layers.front().index_layer = 0;
  const AttentionKind kind = target.attention.at(target.layers.back().attention);
  layer.layers.front().attention = 0;
  layer.attention.assign(1, kind);
  layer.attention.front().num_layers = 1;
  layer.moe.num_layers = std::min(layer.moe.num_layers, 1U);
  layer.indexer.num_layers = std::min(layer.indexer.num_layers, 1U);
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

// What cannot be read is said of the flag that named it.
ModelConfig load_draft_config(const std::string& path) {
  constexpr std::string_view kOther = "--model-path";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (std::optional<ModelConfig> known = catalogue_draft(path)) return *std::move(known);
  }
  try {
    return load_model_config(path);
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

}  // namespace

DraftModel load_draft_model(const std::string& algorithm, const std::string& path,
                            const ModelConfig& target) {
  DraftModel draft;
  if (path.empty()) {
    const bool has_layer =
        std::find(kWithNextLayer.begin(), kWithNextLayer.end(), target.architecture) != kWithNextLayer.end();
    if (algorithm != "EAGLE" || !has_layer)
      throw_user_error("{}: is required by --speculative-algorithm {}, for {} brings no layer that drafts{}",
                       kFlag, algorithm, target.name, known_heads(target));
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
