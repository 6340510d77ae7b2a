// A set of small integers with fast search: a bitmap, a bitmap of its non-empty words, and so on up.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpsim::kvcache {

class SummaryBitset {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // Of members 0 … size-1, none of them in the set.
  explicit SummaryBitset(std::uint32_t size = 0) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }

  bool test(std::uint32_t i) const { return (levels_[0][i / 64] >> (i % 64) & 1) != 0; }
  // Members [64 word, 64 word + 64).
  std::uint64_t word(std::uint32_t word) const { return levels_[0][word]; }
  void set_word(std::uint32_t word, std::uint64_t bits) {
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
  void set(std::uint32_t i) { set_word(i / 64, levels_[0][i / 64] | std::uint64_t{1} << (i % 64)); }
  void reset(std::uint32_t i) { set_word(i / 64, levels_[0][i / 64] & ~(std::uint64_t{1} << (i % 64))); }

  // The first member at or after `from`, or kNone.
  std::uint32_t find(std::uint32_t from) const {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      const std::size_t word = from / 64;
      if (word >= levels_[level].size()) return kNone;
      const std::uint64_t here = levels_[level][word] & (~std::uint64_t{0} << (from % 64));
      if (here != 0) return descend(level, static_cast<std::uint32_t>(word * 64) + low_bit(here));
      from = static_cast<std::uint32_t>(word) + 1;
    }
    return kNone;
  }

 private:
  static std::uint32_t low_bit(std::uint64_t bits) {
    return static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  std::uint32_t descend(std::size_t level, std::uint32_t i) const {
    while (level-- > 0) i = i * 64 + low_bit(levels_[level][i]);
    return i;
  }

  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace tpsim::kvcache
