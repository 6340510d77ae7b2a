#include "rank/weights/dummy_weights.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "proto/base/hash.h"
#include "proto/base/random.h"
#include "proto/base/stop_flag.h"

namespace tpsim::rank {
namespace {

std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  return mix64(fnv1a(name) ^ mix64(seed + kGoldenGamma));
}

// 32 bits of a counter; the best ones are at the top. One key goes in before and one after a round, so that
// two tensors are not the same table shifted. 32-bit steps only: the compiler makes vectors of the loops
// below. Constants: MurmurHash3's finaliser.
inline std::uint32_t hash32(std::uint32_t counter, std::uint32_t key_a, std::uint32_t key_b) {
  std::uint32_t x = counter + key_a;
  x = (x ^ (x >> 16)) * 0x85ebca6b;
  x = (x ^ (x >> 13)) + key_b;
  x *= 0xc2b2ae35;
  x = (x ^ (x >> 16)) * 0x7feb352d;
  return x;
}

// Elements `first` .. `first + count - 1` of one block of 2^32 elements.
struct Block {
  std::uint32_t key_a, key_b;
  std::uint32_t first;
  std::size_t count;
  float* out;
};

// `value`: of 32 hashed bits.
template <typename Value>
void fill(const Block& block, Value value) {
  const auto [key_a, key_b, first, count, out] = block;
  for (std::size_t i = 0; i < count; ++i)
    out[i] = value(hash32(first + static_cast<std::uint32_t>(i), key_a, key_b));
}

}  // namespace

bool DummyWeights::has(const std::string&) const { return true; }

void DummyWeights::require(const std::string&, const std::vector<std::uint64_t>&) const {}

void DummyWeights::read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 32;
  const std::uint64_t key = key_of(seed_, name);
  const bool factor = name.ends_with("scale") || name.ends_with("scalar");
  const bool norm = name.ends_with("norm.weight");
  const bool small = name.ends_with("bias") || name.ends_with("sinks");
  while (count > 0) {
    StopFlag::throw_if_requested();
    const std::uint64_t block_key = mix64(key + first / kBlock);
    Block block{static_cast<std::uint32_t>(block_key), static_cast<std::uint32_t>(block_key >> 32),
                static_cast<std::uint32_t>(first % kBlock),
                static_cast<std::size_t>(std::min(count, kBlock - first % kBlock)), out};
    if (factor || (norm && !norms_less_one_)) {
      // 1 and steps of 1/128, the width of bf16's there.
      fill(block, [](std::uint32_t hash) {
        return static_cast<float>(128 + (static_cast<std::int32_t>(hash >> 28) - 8)) * 0x1p-7F;
      });
    } else {
      // Odd numbers from -255 to 255, scaled: symmetric, and 8 significant bits.
      fill(block, [scale = small ? 0x1p-15F : 0x1p-13F](std::uint32_t hash) {
        return static_cast<float>(2 * static_cast<std::int32_t>(hash >> 24) - 255) * scale;
      });
    }
    first += block.count;
    out += block.count;
    count -= block.count;
  }
}

std::vector<std::int64_t> DummyWeights::integers(const std::string&, std::uint64_t count) const {
  return std::vector<std::int64_t>(count, 0);
}

}  // namespace tpsim::rank
