// A set of small integers with fast search: a bitmap, a bitmap of its non-empty words, and so on up. Its
// memory grows with the largest member that was ever taken out, so that a huge set of which little is used
// stays small.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace tpsim::kvcache {

class SummaryBitset {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // Of members 0 … size-1, all of them in the set.
  explicit SummaryBitset(std::uint32_t size = 0) : size_(size) {}

  bool test(std::uint32_t i) const { return (word(i / 64) >> (i % 64) & 1) != 0; }
  // Members [64 word, 64 word + 64).
  std::uint64_t word(std::uint32_t word) const {
    return word < words_.size() ? words_[word] : untouched(word);
  }
  void set_word(std::uint32_t word, std::uint64_t bits) {
    if (word >= words_.size()) [[unlikely]]
      grow(word + 1);
    const bool had_members = words_[word] != 0;
    words_[word] = bits;
    if (had_members != (bits != 0)) summarize(word, 1, bits != 0);
  }
  // All of words first … first + count - 1 at once: `members` of them, or none. REQUIRES: they lie in one
  // word of the level above, first / 64 == (first + count - 1) / 64, and whole in the set.
  void set_words(std::uint32_t first, std::uint32_t count, bool members);
  // Takes out `i` where it is a member; returns what its word was before, 0 where it is none.
  std::uint64_t take(std::uint32_t i) {
    if (i / 64 >= words_.size()) [[unlikely]]
      return take_untouched(i);
    const std::uint64_t before = words_[i / 64];
    const std::uint64_t bit = std::uint64_t{1} << (i % 64);
    if ((before & bit) == 0) return 0;
    words_[i / 64] = before & ~bit;
    if (before == bit) [[unlikely]]
      summarize(i / 64, 1, false);
    return before;
  }
  void set(std::uint32_t i) { set_word(i / 64, word(i / 64) | std::uint64_t{1} << (i % 64)); }
  void reset(std::uint32_t i) { set_word(i / 64, word(i / 64) & ~(std::uint64_t{1} << (i % 64))); }

  // The first member at or after `from`, or kNone.
  std::uint32_t find(std::uint32_t from) const {
    const std::uint32_t first = from / 64;
    if (first < words_.size()) {
      const std::uint64_t here = words_[first] & (~std::uint64_t{0} << (from % 64));
      if (here != 0) return first * 64 + low_bit(here);
      const std::uint32_t word = find_word(first + 1);
      if (word != kNone) return word * 64 + low_bit(words_[word]);
    }
    // Nothing was ever taken out of what lies after the bitmap.
    const auto behind = static_cast<std::uint32_t>(std::min<std::size_t>(words_.size() * 64, size_));
    return std::max(from, behind) < size_ ? std::max(from, behind) : kNone;
  }

  auto state() { return std::tie(words_, summary_); }

 private:
  static std::uint32_t low_bit(std::uint64_t bits) {
    return static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  // A word that no member was taken out of.
  std::uint64_t untouched(std::uint32_t word) const {
    const std::uint64_t first = std::uint64_t{word} * 64;
    if (first >= size_) return 0;
    return size_ - first >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (size_ - first)) - 1;
  }
  // The first word at or after `from` that has members, or kNone.
  std::uint32_t find_word(std::uint32_t from) const;
  // Notes in the levels above that words have members now, or have none. REQUIRES: as set_words().
  void summarize(std::uint32_t word, std::uint32_t count, bool has_members);
  std::uint64_t take_untouched(std::uint32_t i);
  // Makes room for `words` words, and for as many again: what is allocated goes round the pool.
  void grow(std::size_t words);

  std::uint32_t size_;
  std::vector<std::uint64_t> words_;
  // A bit for each word of the level below that has members; the last level is one word.
  std::vector<std::vector<std::uint64_t>> summary_;
};

}  // namespace tpsim::kvcache
