#include "kvcache/token_runs.h"

#include <cassert>

namespace tpsim::kvcache {

TokenSequence::TokenSequence(std::span<const TokenRun> runs) {
  runs_.reserve(runs.size());
  for (const TokenRun& run : runs) append(run);
}

void TokenSequence::append(TokenRun run) {
  if (run.length == 0) return;
  size_ += run.length;
  if (!runs_.empty() && runs_.back().first + runs_.back().length == run.first) {
    runs_.back().length += run.length;
  } else {
    runs_.push_back(run);
  }
}

void TokenSequence::append(const TokenSequence& other) {
  for (const TokenRun& run : other.runs()) append(run);
}

void TokenSequence::clear() {
  runs_.clear();
  size_ = 0;
}

void TokenSequence::truncate(std::size_t length) {
  assert(length <= size_);
  while (size_ > length) {
    TokenRun& last = runs_.back();
    const std::size_t excess = size_ - length;
    if (last.length > excess) {
      last.length -= static_cast<std::uint32_t>(excess);
      size_ = length;
    } else {
      size_ -= last.length;
      runs_.pop_back();
    }
  }
}

}  // namespace tpsim::kvcache
