// A hash of 64 bits that tells texts, files and lists apart; it does not keep secrets.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpsim {

// `hash` with one more number.
std::uint64_t hash_with(std::uint64_t hash, std::uint64_t number);

// FNV-1a: of names, where others (files, tests/references) compute the same.
constexpr std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Of bytes that come piece by piece: the same however they are cut.
class ByteHash {
 public:
  void add(std::string_view bytes);
  std::uint64_t value() const { return hash_with(hash_with(hash_, word_), size_); }
  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t hash_ = 0;
  std::uint64_t word_ = 0;  // the last size_ % 8 bytes
  std::uint64_t size_ = 0;
};

}  // namespace tpsim
