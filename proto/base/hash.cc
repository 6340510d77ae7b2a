#include "proto/base/hash.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tpsim {
namespace {

// splitmix64's finalizer.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
  return x ^ x >> 31;
}

}  // namespace

std::uint64_t hash_with(std::uint64_t hash, std::uint64_t number) {
  return mixed((hash ^ number) * 0x9E3779B97F4A7C15ULL + hash);
}

std::uint64_t hash_of_bytes(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = mixed(seed + 0x9E3779B97F4A7C15ULL * (bytes.size() + 1));
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::size_t>(bytes.size(), sizeof(std::uint64_t));
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), count);
    hash = hash_with(hash, word);
    bytes.remove_prefix(count);
  }
  return hash;
}

}  // namespace tpsim
