#include "rank/parallel/page_counts.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tpsim::rank {
namespace {

constexpr std::uint8_t kFull = std::numeric_limits<std::uint8_t>::max();

// Sixteen counts at a time: this is where a busy pool's steps spend their time.
constexpr std::uint32_t kLanes = 16;
using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));

struct Change {
  std::uint32_t zeros = 0;  // bytes that were `zero`
  bool carries = false;     // some byte was `carry`
};

// Adds `step` to `count` bytes.
Change change(std::uint8_t* bytes, std::uint32_t count, std::uint8_t zero, std::uint8_t carry,
              std::uint8_t step) {
  Change result;
  std::uint32_t at = 0;
  while (count - at >= kLanes) {
    // As many as a lane can count.
    const std::uint32_t last = at + std::min((count - at) / kLanes, std::uint32_t{kFull}) * kLanes;
    Bytes zeros = {};
    Bytes carries = {};
    for (; at < last; at += kLanes) {
      Bytes values;
      std::memcpy(&values, bytes + at, kLanes);
      zeros -= reinterpret_cast<Bytes>(values == zero);  // a mask of ones is -1
      carries |= reinterpret_cast<Bytes>(values == carry);
      values += step;
      std::memcpy(bytes + at, &values, kLanes);
    }
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      result.zeros += zeros[lane];
      result.carries |= carries[lane] != 0;
    }
  }
  for (; at < count; ++at) {
    result.zeros += bytes[at] == zero ? 1 : 0;
    result.carries |= bytes[at] == carry;
    bytes[at] = static_cast<std::uint8_t>(bytes[at] + step);
  }
  return result;
}

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
  const Change change_of = change(low, run.count, /*zero=*/0, /*carry=*/kFull, /*step=*/1);
  if (change_of.carries) {
    if (high_.data() == nullptr) high_ = ZeroedArray<std::uint8_t>(num_pages_);
    std::uint8_t* const high = high_.data() + run.first;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (low[i] == 0) ++high[i];
    }
  }
  // A low byte of one was zero: nothing, or a multiple of 256.
  const bool some = change_of.zeros != 0 && high_.data() != nullptr;
  return some ? change_of.zeros - with_high(run, 1) : change_of.zeros;
}

std::uint32_t PageCounts::remove(kvcache::PageRun run) {
  std::uint8_t* const low = low_.data() + run.first;
  const Change change_of = change(low, run.count, /*zero=*/1, /*carry=*/0, /*step=*/kFull);
  if (high_.data() == nullptr) return change_of.zeros;
  if (change_of.carries) {
    std::uint8_t* const high = high_.data() + run.first;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (low[i] == kFull) --high[i];
    }
  }
  return change_of.zeros != 0 ? change_of.zeros - with_high(run, 0) : 0;
}

}  // namespace tpsim::rank
