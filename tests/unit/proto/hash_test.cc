#include "proto/base/hash.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace tpsim {
namespace {

std::uint64_t hash_of(std::string_view bytes) {
  ByteHash hash;
  hash.add(bytes);
  return hash.value();
}

TEST(ByteHash, IsTheSameHoweverBytesAreCut) {
  const std::string text = "of bytes that come piece by piece, longer than some words";
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      ByteHash hash;
      hash.add(std::string_view(text).substr(0, first));
      hash.add(std::string_view(text).substr(first, second - first));
      hash.add(std::string_view(text).substr(second));
      ASSERT_EQ(hash.value(), hash_of(text)) << first << " " << second;
      ASSERT_EQ(hash.size(), text.size());
    }
  }
}

TEST(ByteHash, TellsNeighboursApart) {
  std::set<std::uint64_t> hashes;
  std::size_t texts = 0;
  for (std::size_t length = 0; length < 40; ++length, ++texts)
    hashes.insert(hash_of(std::string(length, '\0')));
  for (std::size_t at = 0; at < 40; ++at) {
    for (int bit = 0; bit < 8; ++bit, ++texts) {
      std::string text(40, '\0');
      text[at] = static_cast<char>(1 << bit);
      hashes.insert(hash_of(text));
    }
  }
  EXPECT_EQ(hashes.size(), texts);
}

}  // namespace
}  // namespace tpsim
