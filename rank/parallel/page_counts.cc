#include "rank/parallel/page_counts.h"

#include <limits>

namespace tpsim::rank {
namespace {

constexpr std::uint8_t kFull = std::numeric_limits<std::uint8_t>::max();

}  // namespace

std::uint32_t PageCounts::with_high(kvcache::PageRun run, std::uint8_t low) const {
  std::uint32_t count = 0;
  for (std::uint32_t page = run.first; page < run.first + run.count; ++page)
    count += low_.data()[page] == low && high_.data()[page] != 0 ? 1 : 0;
  return count;
}

std::uint32_t PageCounts::add(kvcache::PageRun run) {
  if (low_.data() == nullptr) [[unlikely]]
    low_ = ZeroedArray<std::uint8_t>(num_pages_);
  std::uint8_t* const low = low_.data() + run.first;
  std::uint32_t zeros = 0;
  std::uint32_t full = 0;
  for (std::uint32_t i = 0; i < run.count; ++i) {
    zeros += low[i] == 0 ? 1 : 0;
    full += low[i] == kFull ? 1 : 0;
    low[i] = static_cast<std::uint8_t>(low[i] + 1);
  }
  if (full != 0) {
    if (high_.data() == nullptr) high_ = ZeroedArray<std::uint8_t>(num_pages_);
    std::uint8_t* const high = high_.data() + run.first;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (low[i] == 0) ++high[i];
    }
  }
  // A low byte of one was zero: nothing, or a multiple of 256.
  return zeros != 0 && high_.data() != nullptr ? zeros - with_high(run, 1) : zeros;
}

std::uint32_t PageCounts::remove(kvcache::PageRun run) {
  std::uint8_t* const low = low_.data() + run.first;
  std::uint32_t zeros = 0;
  std::uint32_t borrows = 0;
  for (std::uint32_t i = 0; i < run.count; ++i) {
    low[i] = static_cast<std::uint8_t>(low[i] - 1);
    zeros += low[i] == 0 ? 1 : 0;
    borrows += low[i] == kFull ? 1 : 0;
  }
  if (high_.data() == nullptr) return zeros;
  if (borrows != 0) {
    std::uint8_t* const high = high_.data() + run.first;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (low[i] == kFull) --high[i];
    }
  }
  return zeros != 0 ? zeros - with_high(run, 0) : 0;
}

}  // namespace tpsim::rank
