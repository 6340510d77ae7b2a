// The model that drafts in speculative decoding: a smaller model of its own (STANDALONE), or a head of one
// layer that also reads what the target model computed (EAGLE, EAGLE3, and the layer for the next token that
// DeepSeek's and GLM's checkpoints have, which SGLang calls NEXTN).
//
// Source: SGLang 0.5.23 models/llama_eagle.py, llama_eagle3.py, deepseek_nextn.py, glm4_moe_nextn.py, and
// EagleDraftWorker.init_lm_head of speculative/eagle_worker_v2.py for what is shared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"

namespace tpsim::rank {

enum class DraftKind : std::uint8_t {
  kModel,   // STANDALONE
  kEagle,   // embedding and hidden state are joined before the layer; embedding and head are the target's
  kEagle3,  // three hidden states of the target are joined once, the layer reads the embedding beside them;
            // the embedding is the target's
  kNextN,   // as kEagle, and the layer is one of the target's kind
};

struct DraftModel {
  DraftKind kind = DraftKind::kModel;
  ModelConfig config;                 // its layers; vocab_size is that of its head
  std::uint32_t layer_of_target = 0;  // kNextN: its place in the target's checkpoint
  // EAGLE3. Layers of the target whose inputs it joins, ascending (set_eagle3_layers_to_capture of
  // models/llama.py, unless its eagle_config names others).
  std::vector<std::uint32_t> hidden_layers;
  bool own_head = false;     // else the target's
  bool norm_output = false;  // it goes on from what its output head reads, else from before the last norm
  std::string not_computed;  // of its config, a key that numeric execution cannot follow; empty: none

  bool is_head() const { return kind != DraftKind::kModel; }
  // Hidden vectors that are joined into one before the first layer, in a pass that extends after the target,
  // and in one that goes on from its own; 0: none are.
  std::uint32_t joined(bool extends) const;
  // The layer's queries, keys and values are made of twice the hidden size.
  bool wide_qkv() const { return kind == DraftKind::kEagle3; }
};

// Whether the model's checkpoint brings a layer for the next token.
bool has_next_layer(const ModelConfig& model);

// `algorithm`: "EAGLE", "EAGLE3" or "STANDALONE". `path` as --speculative-draft-model-path: a folder, a model
// or a head of the catalogue, or its Hugging Face id; empty: the target's own layer for the next token.
// Throws UserError for what cannot draft for `target`.
DraftModel load_draft_model(const std::string& algorithm, const std::string& path, const ModelConfig& target);

// What it adds to a rank's weights: not what it shares with the target.
std::uint64_t draft_weight_bytes(const DraftModel& draft, const Shard& shard);

}  // namespace tpsim::rank
