#include "rank/numeric/weight_reader.h"

#include <algorithm>

namespace tpsim::rank {

PackedMatrix WeightReader::matrix(const std::vector<Slice>& slices, WeightType type) const {
  std::uint64_t outputs = 0;
  for (const Slice& slice : slices) {
    source_.require(slice.name, {slice.rows, slice.columns});
    outputs += slice.count;
  }
  std::size_t at = 0;  // outputs come in order
  std::uint64_t begin = 0;
  const auto width = static_cast<std::uint32_t>(slices.front().width);
  return PackedMatrix(type, static_cast<std::uint32_t>(outputs), width,
                      [&](std::uint32_t output, float* out) {
                        while (output >= begin + slices[at].count) begin += slices[at++].count;
                        const Slice& slice = slices[at];
                        const std::uint64_t row = slice.first + (output - begin);
                        if (row >= slice.rows) {
                          std::fill(out, out + width, 0.0F);
                        } else {
                          source_.read(slice.name, row * slice.columns + slice.column, width, out);
                        }
                      });
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
