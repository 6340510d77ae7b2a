// What a model is made of on one rank: its kinds of attention layers, and the one list of its weights. Price,
// memory and numeric execution all read these, so that what is computed is what is counted and priced.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/layer_shape.h"
#include "proto/base/number_format.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/config/weight_format.h"

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

// The part of it that is in layers with a window or a chunk. Of compressed attention: what a token in the
// pool of windows takes, with the states that its compressors keep of it.
std::uint64_t window_bytes_per_token(const ModelConfig& model, const Shard& shard, NumberFormat kv_format);

// Linear layers on one rank. All zero where the model has none.
struct LinearLayers {
  LinearKind kind = LinearKind::kGatedDelta;
  std::uint32_t count = 0;
  std::uint32_t num_k_heads = 0, num_v_heads = 0, k_dim = 0, v_dim = 0;
  std::uint32_t conv_kernel = 0;
  std::uint32_t state_bytes = 0;  // of an element of the recurrent state
  std::uint32_t chunk = 0;        // tokens that prefill takes at once
  bool tuned = false;             // ArchitectureFacts::tunes_scans
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

// How a weight is cut over the ranks.
enum class Sharding : std::uint8_t { kColumn, kRow, kVocabulary, kReplicated };

enum class WeightRole : std::uint8_t {
  kLinear,     // y[m, n] = x[m, k] W
  kExperts,    // the same once for each routed expert of the rank, in one call for both projections
  kEmbedding,  // rows are looked up
  kVector,     // norms and the like: n elements
};

// The part of a layer that a weight belongs to: which tokens it is multiplied with, and over which ranks it
// is cut (ParallelLayout).
enum class ModelPart : std::uint8_t {
  kAttention,
  kDenseMlp,
  kRouter,
  kSharedExperts,
  kExperts,
  kHead,
  kRest
};

// Rows [first, first + count) of a checkpoint's tensor [rows, columns], and of each the columns
// [column, column + width).
struct TensorSlice {
  std::string tensor;  // as the layer calls it, without ".weight": "self_attn.q_proj"
  std::uint64_t rows = 0, columns = 0;
  std::uint64_t first = 0, count = 0;
  std::uint64_t column = 0, width = 0;
};

// One kind of weight, as SGLang keeps it on a rank: slices of the checkpoint's tensors, one above the other.
struct WeightSpec {
  std::string name;  // SGLang's: "qkv_proj", "shared_experts.down_proj" …
  WeightRole role = WeightRole::kLinear;
  Sharding sharding = Sharding::kReplicated;
  ModelPart part = ModelPart::kRest;
  std::uint64_t k = 0, n = 0;  // of this rank
  std::uint64_t bias = 0;      // elements of this rank
  std::uint32_t layers = 1;    // that have it
  std::uint32_t experts = 1;   // of this rank, in each of the layers
  bool tied = false;           // is another weight, too, and takes no memory of its own
  bool quantised = false;      // --quantization applies
  bool joined = false;         // one product with the linear weight before it, while both are 16 bit
  // Where layers differ in their heads: which of ModelConfig::attention have it.
  std::uint32_t attention = 0;
  WeightFormat format;
  std::vector<TensorSlice> slices;  // empty: a tensor of just this shape, or several (vectors)

  std::uint64_t copies() const { return std::uint64_t{layers} * experts; }
};

// All of this rank's, linear layers in the order in which a pass first meets them, experts and what is not
// multiplied after them.
std::vector<WeightSpec> weight_list(const ModelConfig& model, const Shard& shard);
// The entry of that name, and of these layers; throws std::out_of_range where there is none.
const WeightSpec& weight_named(const std::vector<WeightSpec>& weights, std::string_view name,
                               std::uint32_t attention = 0);

std::uint64_t num_parameters(const ModelConfig& model, const Shard& shard);
// All parameters of this rank, embedding and norms included, and what quantising them while loading leaves
// behind.
std::uint64_t weight_bytes(const ModelConfig& model, const Shard& shard);

// Formats of the list's entries (weight_spec.cc).

// `weights` with their formats. An entry of which some layers stay 16 bit becomes two, the quantised first.
std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights);

// `weights`: a rank's of `model`. Throws UserError where its part of one is not made of whole blocks of
// scales, which SGLang refuses. (Numeric execution computes with what the blocks stand for, and cuts that
// anywhere.)
void check_blocks(const std::vector<WeightSpec>& weights, const std::string& model);

// What quantising 16-bit weights while they are loaded leaves behind in a GPU's memory: bytes beyond those of
// the weights themselves that stay reserved, for the linear layers of `weights` in their order, layer by
// layer. Experts are quantised one by one into memory of their own and leave nothing.
//
// SGLang first loads every weight in 16 bit, then replaces them module by module by a quantised copy
// (model_loader/loader.py, process_weights_after_loading). PyTorch's caching allocator puts copies into the
// gaps that earlier originals left, and can give back only what is wholly free: a llama-3.1-8b keeps 0.26 GiB
// more than its fp8 weights, in a real server as here.
std::uint64_t loading_leftover_bytes(const std::vector<WeightSpec>& weights);

}  // namespace tpsim::rank
