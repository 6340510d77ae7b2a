#include "rank/numeric/weight_reader.h"

#include <algorithm>

namespace tpsim::rank {

PackedMatrix WeightReader::matrix(const std::string& at, const std::vector<TensorSlice>& slices,
                                  WeightType type) const {
  std::uint64_t outputs = 0;
  std::vector<std::string> names;
  for (const TensorSlice& slice : slices) {
    source_.require(names.emplace_back(at + slice.tensor + ".weight"), {slice.rows, slice.columns});
    outputs += slice.count;
  }
  std::size_t current = 0;  // outputs come in order
  std::uint64_t begin = 0;
  const auto width = static_cast<std::uint32_t>(slices.front().width);
  return PackedMatrix(type, static_cast<std::uint32_t>(outputs), width,
                      [&](std::uint32_t output, float* out) {
                        while (output >= begin + slices[current].count) begin += slices[current++].count;
                        const TensorSlice& slice = slices[current];
                        const std::uint64_t row = slice.first + (output - begin);
                        if (row >= slice.rows) {
                          std::fill(out, out + width, 0.0F);
                        } else {
                          source_.read(names[current], row * slice.columns + slice.column, width, out);
                        }
                      });
}

std::vector<float> WeightReader::bias(const std::string& at, const WeightSpec& weight) const {
  std::vector<float> out;
  if (weight.bias == 0) return out;
  for (const TensorSlice& slice : weight.slices) {
    const std::vector<float> part =
        range(at + slice.tensor + ".bias", {slice.rows}, slice.first, slice.count);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::vector<float> WeightReader::vector(const std::string& name, std::uint64_t size) const {
  return range(name, {size}, 0, size);
}

std::vector<float> WeightReader::range(const std::string& name, const std::vector<std::uint64_t>& shape,
                                       std::uint64_t first, std::uint64_t count) const {
  source_.require(name, shape);
  std::vector<float> out(count);
  source_.read(name, first, count, out.data());
  return out;
}

}  // namespace tpsim::rank
