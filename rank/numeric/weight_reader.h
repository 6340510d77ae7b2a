// Reads shards of tensors: rows or columns of them, as PackedMatrix or as plain vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/linear/packed_matrix.h"
#include "rank/llm/layers.h"
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

}  // namespace tpsim::rank
