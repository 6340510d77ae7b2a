#include "proto/base/hash.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "proto/base/random.h"

namespace tpsim {

std::uint64_t hash_with(std::uint64_t hash, std::uint64_t number) {
  return mix64((hash ^ number) * kGoldenGamma + hash);
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
