// One entry of the list of a rank's weights (rank/llm/layers.h), and the formats that quantisation gives
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {

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
  WeightFormat format;
  std::vector<TensorSlice> slices;  // empty: a tensor of just this shape, or several (vectors)

  std::uint64_t copies() const { return std::uint64_t{layers} * experts; }
};

// `weights` with their formats. An entry of which some layers stay 16 bit becomes two, the quantised first.
std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights);

// `weights`: a rank's of `model`. Throws UserError where its part of one is not made of whole blocks of
// scales, which SGLang refuses. (Numeric execution computes with what the blocks stand for, and cuts that
// anywhere.)
void check_blocks(const std::vector<WeightSpec>& weights, const std::string& model);

}  // namespace tpsim::rank
