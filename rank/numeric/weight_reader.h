// Reads shards of tensors: rows or columns of them, as PackedMatrix or as plain vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/linear/packed_matrix.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// Rows [first, first + count) of a two-dimensional tensor, and of each the columns [column, column + width).
struct Slice {
  std::string name;
  std::uint64_t rows = 0, columns = 0;  // of the whole tensor
  std::uint64_t first = 0, count = 0;
  std::uint64_t column = 0, width = 0;
};

class WeightReader {
 public:
  WeightReader(const TensorSource& source, WeightType type) : source_(source), type_(type) {}

  const TensorSource& source() const { return source_; }
  WeightType type() const { return type_; }

  // The slices stacked, one above the other. Rows beyond a tensor's are zero.
  PackedMatrix matrix(const std::vector<Slice>& slices) const { return matrix(slices, type_); }
  PackedMatrix matrix(const std::vector<Slice>& slices, WeightType type) const;
  std::vector<float> vector(const std::string& name, std::uint64_t size) const;
  // Elements [first, first + count) of a tensor of this shape.
  std::vector<float> range(const std::string& name, const std::vector<std::uint64_t>& shape,
                           std::uint64_t first, std::uint64_t count) const;

 private:
  const TensorSource& source_;
  WeightType type_;
};

}  // namespace tpsim::rank
