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

void ByteHash::add(std::string_view bytes) {
  constexpr std::size_t kWord = sizeof(word_);
  const auto take = [&](std::size_t count, std::size_t behind) {
    std::uint64_t part = 0;
    std::memcpy(&part, bytes.data(), count);
    word_ |= part << (8 * behind);
    size_ += count;
    bytes.remove_prefix(count);
    if (size_ % kWord != 0) return;
    hash_ = hash_with(hash_, word_);
    word_ = 0;
  };
  if (const std::size_t begun = size_ % kWord; begun > 0 && !bytes.empty())
    take(std::min(kWord - begun, bytes.size()), begun);
  while (bytes.size() >= kWord) take(kWord, 0);
  if (!bytes.empty()) take(bytes.size(), 0);
}

}  // namespace tpsim
