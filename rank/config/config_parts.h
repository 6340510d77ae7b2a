// Readers of parts of a config.json that several families share. Each throws UserError naming file and key.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/config/model_config.h"
#include "rank/config/vision_config.h"

namespace tpsim::rank {

// silu or gelu_pytorch_tanh.
Activation read_activation(const ConfigReader& config, const char* key, const char* otherwise);

// Of each layer, whether the list under `key` has `yes` for it, and not `no`. REQUIRES: config.has(key).
std::vector<bool> read_kinds(const ConfigReader& config, const char* key, std::uint32_t num_layers,
                             std::string_view no, std::string_view yes);

// A list of whole numbers below `end`.
std::vector<std::uint32_t> read_numbers(const ConfigReader& config, const char* key, std::uint32_t end,
                                        std::vector<std::uint32_t> otherwise = {});

// Makes `layers`, with "sliding_window" in those that "layer_types" names, or else in those of which
// `slides` says so.
void read_layers(const ConfigReader& config, ModelConfig& model,
                 const std::function<bool(std::uint32_t layer)>& slides);
// No layer slides, unless "layer_types" says so.
void read_layers(const ConfigReader& config, ModelConfig& model);

// What a model's code takes where config.json says nothing.
struct RopeDefaults {
  double theta = 10000;
  // Models whose code rotates a part of each head only: what it takes where the config says nothing.
  std::optional<double> partial_rotary_factor = std::nullopt;
  // Window layers turn at a base of their own ("rope_local_base_freq"), unscaled.
  std::optional<double> local_theta = std::nullopt;
  // Qwen-VL: RopeConfig's, where the config is silent.
  std::array<std::uint32_t, 3> mrope_section = {};
};
// rope_scaling and rope_theta (Transformers 4) or rope_parameters (5). REQUIRES: layers.
void read_rope(const ConfigReader& config, ModelConfig& model, const RopeDefaults& defaults = {});

// Heads, groups, states and chunks of Mamba 2 (LinearAttentionConfig), but for the number of its layers.
void read_mamba2(const ConfigReader& config, ModelConfig& model);

// dual_chunk_attention_config. REQUIRES: layers and ropes.
void read_dual_chunk(const ConfigReader& config, ModelConfig& model);

// Also sets head_dim and attention_scale.
void read_mla(const ConfigReader& config, ModelConfig& model);
// The rotation of MLA, whose scaling enters the attention's scale. REQUIRES: layers, read_mla().
void read_mla_rope(const ConfigReader& config, ModelConfig& model);

constexpr std::uint32_t kMostExperts = 4096;
constexpr std::uint32_t kWidestExpert = 1U << 24;
// What DeepSeek's code and GLM's take where config.json says nothing.
struct GroupedExpertDefaults {
  ExpertScoring scoring = ExpertScoring::kSigmoid;
  bool normalize_weights = false;
};
// Routed experts, perhaps in groups, shared experts, and dense layers before them: n_routed_experts, n_group,
// n_shared_experts, first_k_dense_replace … Nothing where there are no n_routed_experts. REQUIRES: layers.
void read_grouped_experts(const ConfigReader& config, ModelConfig& model, GroupedExpertDefaults defaults);

// Of a config.json (as it is, not flattened) that describes a vision encoder which `read` reads, else none
// present. `architecture`: of the whole model.
using VisionReader = void (*)(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision);
VisionConfig read_vision(const Json& json, const std::string& where, std::string_view architecture,
                         VisionReader read, std::uint32_t text_hidden_size);
// A number, or the first of a list of two equal ones (image_size, patch_size of some configs).
std::uint32_t read_side(const ConfigReader& config, const char* key, std::uint32_t otherwise);
// The id of a marker token, none where the config does not say.
std::vector<std::uint32_t> read_marker(const ConfigReader& root, const char* key);
// An id of the vocabulary, 0 where config.json does not say: Transformers 4 calls it INDEX, 5 also ID.
std::uint32_t read_token(const ConfigReader& root, const char* index, const char* id);
// What preprocessor_config.json, beside config.json, says of the sizes of images.
void read_preprocessor(const ConfigReader& config, VisionConfig& vision);
// What added_tokens.json says of the ids around an image (InternVL, whose config.json does not name them).
void read_added_tokens(const Json& json, VisionConfig& vision);

// Adds the ids of "eos_token_id", one or a list.
void read_eos(const ConfigReader& config, ModelConfig& model);

}  // namespace tpsim::rank
