#include "rank/numeric/collectives.h"

#include <cstring>

namespace tpsim::rank {
void sum_in_rank_order(std::span<const float* const> parts, std::uint64_t count, float* out) {
  if (parts.size() == 1) {
    if (out != parts[0]) std::memcpy(out, parts[0], count * sizeof(float));
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) out[i] = parts[0][i] + parts[1][i];
  for (std::size_t r = 2; r < parts.size(); ++r) {
    const float* const part = parts[r];
    for (std::uint64_t i = 0; i < count; ++i) out[i] += part[i];
  }
}

double ring_bytes(std::uint32_t tp_size, std::uint64_t count, bool reduce) {
  const double share = static_cast<double>(tp_size - 1) / tp_size;
  return (reduce ? 2 : 1) * share * static_cast<double>(count) * sizeof(float);
}

double exchanged_bytes(const Collectives::Messages& sent, std::uint32_t first_rank) {
  double floats = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    for (std::size_t r = 0; r < sent[i].size(); ++r)
      floats += r == first_rank + i ? 0 : double(sent[i][r].size());
  }
  return floats * sizeof(float) / static_cast<double>(sent.size());
}

void LocalCollectives::all_reduce(std::span<const float* const> parts, std::uint64_t count, float* out) {
  sum_in_rank_order(parts, count, out);
  bytes_sent_ += ring_bytes(tp_size_, count, /*reduce=*/true);
}

void LocalCollectives::all_gather(std::span<const float* const> parts, std::uint32_t rows,
                                  std::uint32_t columns, float* out) {
  const std::size_t width = std::size_t{tp_size_} * columns;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(out + row * width + r * columns, parts[r] + row * columns, columns * sizeof(float));
  }
  bytes_sent_ += ring_bytes(tp_size_, std::uint64_t{rows} * width, /*reduce=*/false);
}

void LocalCollectives::all_to_all(const Messages& sent, Messages& received) {
  received.assign(tp_size_, {});
  for (std::uint32_t to = 0; to < tp_size_; ++to) {
    for (std::uint32_t from = 0; from < tp_size_; ++from) received[to].push_back(sent[from][to]);
  }
  bytes_sent_ += exchanged_bytes(sent, 0);
}

}  // namespace tpsim::rank
