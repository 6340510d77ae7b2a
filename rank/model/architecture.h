// What tells the supported architectures apart: which of a config.json's keys count for which, and what the
// code of a model does without a key.
#pragma once

#include "rank/model/config_reader.h"
#include "rank/model/model_config.h"

namespace tpsim::rank {

// Fills everything of `model` beyond the common sizes: biases, norms, layers, windows, rope, experts, MLA.
// REQUIRES: architecture, hidden_size, num_layers, heads, head_dim, vocab_size and intermediate_size are set.
// Throws UserError. Facts: Transformers' configuration_*.py and modeling_*.py of each model.
void read_architecture(const ConfigReader& config, ModelConfig& model);

// Parts of it, each in a file of its own.
void read_rope(const ConfigReader& config, ModelConfig& model);
void read_moe(const ConfigReader& config, ModelConfig& model);
// REQUIRES: layers and ropes are read.
void read_dual_chunk(const ConfigReader& config, ModelConfig& model);
// Adds the ids of "eos_token_id", one or a list.
void read_eos(const ConfigReader& config, ModelConfig& model);

}  // namespace tpsim::rank
