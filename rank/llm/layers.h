// What a model is made of on one rank: its kinds of attention layers, and the one list of its weights. Price,
// memory and numeric execution all read these, so that what is computed is what is counted and priced.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/layer_shape.h"
#include "proto/base/number_format.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/weight_spec.h"

namespace tpsim::rank {

// Layers that attend alike.
struct AttentionLayers {
  attention::LayerShape shape;
  attention::LayerShape
      expanded;  // MLA: of an extend that expands the latents; keys and values are dense, in 16 bit
  std::uint32_t count = 0;
};
// One for each of model.attention, in its order.
std::vector<AttentionLayers> attention_layers(const ModelConfig& model, const Shard& shard,
                                              NumberFormat kv_format = NumberFormat::kBf16,
                                              std::uint32_t sparse_token_bytes = 0);

// KV cache of one token on this rank, in bytes, all layers. `sparse_token_bytes`: of a latent of sparse
// attention (attention/sparse_kernels.h); 0: as `kv_format` has it. Their index keys are counted, too.
std::uint64_t kv_bytes_per_token(const ModelConfig& model, const Shard& shard, NumberFormat kv_format,
                                 std::uint32_t sparse_token_bytes = 0);

// The part of it that is in layers with a window or a chunk.
std::uint64_t window_bytes_per_token(const ModelConfig& model, const Shard& shard, NumberFormat kv_format);

// Gated delta-net layers on one rank. All zero where the model has none.
struct LinearLayers {
  std::uint32_t count = 0;
  std::uint32_t num_k_heads = 0, num_v_heads = 0, k_dim = 0, v_dim = 0;
  std::uint32_t conv_kernel = 0;
  std::uint32_t state_bytes = 0;  // of an element of the recurrent state
  // Channels of the convolution: queries, keys and values of all heads.
  std::uint64_t conv_dim() const {
    return std::uint64_t{2} * num_k_heads * k_dim + std::uint64_t{num_v_heads} * v_dim;
  }
  // What one request keeps in one layer, in bytes: the last tokens before the convolution in 16 bit, and a
  // matrix for each value head (SGLang's MambaPool, configs/mamba_utils.py).
  std::uint64_t conv_bytes() const { return conv_dim() * (conv_kernel - 1) * 2; }
  std::uint64_t temporal_bytes() const { return std::uint64_t{num_v_heads} * k_dim * v_dim * state_bytes; }
  // In all layers (SGLang's mamba_cache_per_req).
  std::uint64_t bytes_per_request() const {
    return count == 0 ? 0 : count * (conv_bytes() + temporal_bytes());
  }
};
LinearLayers linear_layers(const ModelConfig& model, const Shard& shard);

// All of this rank's, linear layers in the order in which a pass first meets them, experts and what is not
// multiplied after them.
std::vector<WeightSpec> weight_list(const ModelConfig& model, const Shard& shard);
// The entry of that name; throws std::out_of_range where there is none.
const WeightSpec& weight_named(const std::vector<WeightSpec>& weights, std::string_view name);

std::uint64_t num_parameters(const ModelConfig& model, const Shard& shard);
// All parameters of this rank, embedding and norms included, and what quantising them while loading leaves
// behind.
std::uint64_t weight_bytes(const ModelConfig& model, const Shard& shard);

}  // namespace tpsim::rank
