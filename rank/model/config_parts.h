// Readers of parts of a config.json that several families share. Each throws UserError naming file and key.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "rank/model/config_reader.h"
#include "rank/model/model_config.h"

namespace tpsim::rank {

// silu or gelu_pytorch_tanh.
Activation read_activation(const ConfigReader& config, const char* key, const char* otherwise);

// Makes `layers`, with "sliding_window" in those that "layer_types" names, or else in those of which
// `slides` says so.
void read_layers(const ConfigReader& config, ModelConfig& model,
                 const std::function<bool(std::uint32_t layer)>& slides);
// No layer slides, unless "layer_types" says so.
void read_layers(const ConfigReader& config, ModelConfig& model);

// What a model's code takes where config.json says nothing.
struct RopeDefaults {
  double theta = 10000;
  // Window layers turn at a base of their own ("rope_local_base_freq"), unscaled.
  std::optional<double> local_theta = std::nullopt;
};
// rope_scaling and rope_theta (Transformers 4) or rope_parameters (5). REQUIRES: layers.
void read_rope(const ConfigReader& config, ModelConfig& model, const RopeDefaults& defaults = {});

// Also sets head_dim and attention_scale.
void read_mla(const ConfigReader& config, ModelConfig& model);
// The rotation of MLA, whose scaling enters the attention's scale. REQUIRES: layers, read_mla().
void read_mla_rope(const ConfigReader& config, ModelConfig& model);

constexpr std::uint32_t kMostExperts = 4096;
constexpr std::uint32_t kWidestExpert = 1U << 24;
// n_group and topk_group. REQUIRES: num_experts, top_k and group_score_top2.
void read_expert_groups(const ConfigReader& config, ModelConfig& model);

// Adds the ids of "eos_token_id", one or a list.
void read_eos(const ConfigReader& config, ModelConfig& model);

}  // namespace tpsim::rank
