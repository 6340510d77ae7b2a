#include "kvcache/pools/summary_bitset.h"

#include <utility>

namespace tpsim::kvcache {

std::uint32_t SummaryBitset::find_word(std::uint32_t from) const {
  for (std::size_t level = 0; level < summary_.size(); ++level) {
    std::uint32_t at = from / 64;
    if (at >= summary_[level].size()) return kNone;
    const std::uint64_t here = summary_[level][at] & (~std::uint64_t{0} << (from % 64));
    if (here != 0) {
      at = at * 64 + low_bit(here);
      while (level-- > 0) at = at * 64 + low_bit(summary_[level][at]);
      return at;
    }
    from = at + 1;
  }
  return kNone;
}

void SummaryBitset::summarize(std::uint32_t word, std::uint32_t count, bool has_members) {
  std::uint64_t changed = (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << (word % 64);
  for (std::vector<std::uint64_t>& level : summary_) {
    std::uint64_t& bits = level[word / 64];
    const bool had_members = bits != 0;
    bits = has_members ? bits | changed : bits & ~changed;
    has_members = bits != 0;
    if (has_members == had_members) return;
    word /= 64;
    changed = std::uint64_t{1} << (word % 64);
  }
}

void SummaryBitset::set_words(std::uint32_t first, std::uint32_t count, bool members) {
  if (first + count > words_.size()) [[unlikely]]
    grow(first + count);
  std::fill_n(words_.begin() + first, count, members ? ~std::uint64_t{0} : 0);
  summarize(first, count, members);
}

std::uint64_t SummaryBitset::take_untouched(std::uint32_t i) {
  const std::uint64_t before = test(i) ? word(i / 64) : 0;
  if (before != 0) reset(i);
  return before;
}

void SummaryBitset::grow(std::size_t words) {
  constexpr std::size_t kFewest = 1024;
  const std::size_t all = (std::size_t{size_} + 63) / 64;
  const std::size_t before = words_.size();
  words_.resize(std::min(all, std::max(2 * words, kFewest)));
  for (std::size_t i = before; i < words_.size(); ++i) words_[i] = untouched(static_cast<std::uint32_t>(i));
  summary_.clear();
  do {
    const std::vector<std::uint64_t>& below = summary_.empty() ? words_ : summary_.back();
    std::vector<std::uint64_t> above((below.size() + 63) / 64, 0);
    for (std::size_t i = 0; i < below.size(); ++i)
      above[i / 64] |= std::uint64_t{below[i] != 0 ? 1U : 0U} << (i % 64);
    summary_.push_back(std::move(above));
  } while (summary_.back().size() > 1);
}

}  // namespace tpsim::kvcache
