#include "rank/config/weight_format.h"

namespace tpsim::rank {

std::uint64_t WeightFormat::bytes(std::uint64_t n, std::uint64_t k) const {
  const std::uint64_t weights = n * k;
  const auto blocks = [](std::uint64_t size, std::uint64_t block) {
    return block == 0 ? 1 : (size + block - 1) / block;
  };
  const std::uint64_t scales = blocks(n, block_n) * blocks(k, block_k);
  switch (kind) {
    case Kind::k16Bit:
      return 2 * weights;
    case Kind::kFp8:
      return weights + (block_k == 32 ? 1 : 4) * scales;  // groups of 32: mxfp8's, of 8 bit
    case Kind::kInt8:
      return weights + 4 * scales;
    case Kind::kInt4:
      return weights / 2 + 2 * scales + (zero_points ? scales / 2 : 0);
    case Kind::kMxfp4:
      return weights / 2 + scales;
    case Kind::kNvfp4:
      return weights / 2 + scales + 4;
  }
  return 2 * weights;
}

}  // namespace tpsim::rank
