// Reads shards of tensors: rows or columns of them, as PackedMatrix or as plain vectors; gated MLPs and
// experts of one tensor per expert and projection, or all fused in one, as Transformers 5 and gpt-oss keep
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/linear/packed_matrix.h"
#include "rank/llm/layers.h"
#include "rank/numeric/rank_weights.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class WeightReader {
 public:
  WeightReader(const TensorSource& source, WeightType type) : source_(source), type_(type) {}

  const TensorSource& source() const { return source_; }
  WeightType type() const { return type_; }

  // The slices of a weight, one above the other, out of the tensors `at` + slice + ".weight". Rows beyond a
  // tensor's are zero.
  PackedMatrix matrix(const std::string& at, const WeightSpec& weight) const {
    return matrix(at, weight.slices, type_);
  }
  PackedMatrix matrix(const std::string& at, const std::vector<TensorSlice>& slices, WeightType type) const;
  // The rows of `at` + slice + ".bias" that go with it; empty where the weight has none.
  std::vector<float> bias(const std::string& at, const WeightSpec& weight) const;
  std::vector<float> vector(const std::string& name, std::uint64_t size) const;
  // Elements [first, first + count) of a tensor of this shape.
  std::vector<float> range(const std::string& name, const std::vector<std::uint64_t>& shape,
                           std::uint64_t first, std::uint64_t count) const;

 private:
  const TensorSource& source_;
  WeightType type_;
};

// The gated MLP of layer `at` ("…layers.3.") with these weights. The bias of the sum over the ranks is added
// by one of them.
MlpWeights load_mlp(const WeightReader& reader, const std::string& at, const WeightSpec& gate_up,
                    const WeightSpec& down, bool adds_down_bias);

// The router, experts and shared experts of layer `at`. `weights`: weight_list() of the rank.
MoeWeights load_moe(const ModelConfig& model, const Shard& shard, const std::vector<WeightSpec>& weights,
                    const WeightReader& reader, const std::string& at);

}  // namespace tpsim::rank
