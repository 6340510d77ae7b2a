// A set of small integers with fast search: a bitmap, a bitmap of its non-empty words, and so on up. Its
// memory grows with the largest member that was ever taken out, so that a huge set of which little is used
// stays small.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tpsim::kvcache {

class SummaryBitset {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // Of members 0 … size-1, all of them in the set.
  explicit SummaryBitset(std::uint32_t size = 0) : size_(size), levels_(1) {}

  bool test(std::uint32_t i) const { return (word(i / 64) >> (i % 64) & 1) != 0; }
  // Members [64 word, 64 word + 64).
  std::uint64_t word(std::uint32_t word) const {
    return word < levels_[0].size() ? levels_[0][word] : untouched(word);
  }
  void set_word(std::uint32_t word, std::uint64_t bits) {
    if (word >= levels_[0].size()) grow(word + 1);
    levels_[0][word] = bits;
    for (std::size_t level = 1; level < levels_.size(); ++level) {
      const std::uint64_t bit = std::uint64_t{1} << (word % 64);
      std::uint64_t& above = levels_[level][word / 64];
      const std::uint64_t before = above;
      above = bits != 0 ? above | bit : above & ~bit;
      if (above == before) return;
      bits = above;
      word /= 64;
    }
  }
  void set(std::uint32_t i) { set_word(i / 64, word(i / 64) | std::uint64_t{1} << (i % 64)); }
  void reset(std::uint32_t i) { set_word(i / 64, word(i / 64) & ~(std::uint64_t{1} << (i % 64))); }

  // The first member at or after `from`, or kNone.
  std::uint32_t find(std::uint32_t from) const {
    const auto grown = static_cast<std::uint32_t>(std::min<std::size_t>(levels_[0].size() * 64, size_));
    const std::uint32_t beyond = std::max(from, grown);
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      const std::size_t word = from / 64;
      if (word >= levels_[level].size()) break;
      const std::uint64_t here = levels_[level][word] & (~std::uint64_t{0} << (from % 64));
      if (here != 0) return descend(level, static_cast<std::uint32_t>(word * 64) + low_bit(here));
      from = static_cast<std::uint32_t>(word) + 1;
    }
    return beyond < size_ ? beyond : kNone;
  }

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
  // Makes room for `words` words, and for as many again: what is allocated goes round the pool.
  void grow(std::size_t words) {
    constexpr std::size_t kFewest = 1024;
    const std::size_t all = (std::size_t{size_} + 63) / 64;
    std::vector<std::uint64_t>& bits = levels_[0];
    bits.reserve(std::min(all, std::max(2 * words, kFewest)));
    while (bits.size() < bits.capacity() && bits.size() < all)
      bits.push_back(untouched(static_cast<std::uint32_t>(bits.size())));
    levels_.resize(1);
    while (levels_.back().size() > 1) {
      const std::vector<std::uint64_t>& below = levels_.back();
      std::vector<std::uint64_t> above((below.size() + 63) / 64, 0);
      for (std::size_t i = 0; i < below.size(); ++i)
        above[i / 64] |= std::uint64_t{below[i] != 0 ? 1U : 0U} << (i % 64);
      levels_.push_back(std::move(above));
    }
  }
  std::uint32_t descend(std::size_t level, std::uint32_t i) const {
    while (level-- > 0) i = i * 64 + low_bit(levels_[level][i]);
    return i;
  }

  std::uint32_t size_;
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace tpsim::kvcache
