// Sequences of token ids, held as runs.
//
// A prompt of a trace is known as blocks of tokens that nobody has seen; as runs, a 100,000-token prompt
// costs as much as its blocks. Real token ids are runs too (mostly of length 1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

namespace tpsim::kvcache {

using TokenId = std::uint64_t;

// `length` consecutive ids: first, first + 1, …
struct TokenRun {
  TokenId first = 0;
  std::uint32_t length = 0;
  friend bool operator==(const TokenRun&, const TokenRun&) = default;
};

// A sequence of tokens as canonical runs.
// Invariants: no run is empty; no run continues the one before it (so equal sequences have equal runs).
class TokenSequence {
 public:
  TokenSequence() = default;
  // Any runs; they are made canonical.
  explicit TokenSequence(std::span<const TokenRun> runs);

  // Appends `run`, merging it into the last run where it continues it. An empty run changes nothing.
  void append(TokenRun run);
  void append(const TokenSequence& other);
  void clear();
  // Keeps the first `length` tokens. REQUIRES: length <= size().
  void truncate(std::size_t length);

  std::size_t size() const { return size_; }  // tokens
  bool empty() const { return size_ == 0; }
  std::span<const TokenRun> runs() const { return runs_; }

  // Calls `take` with the runs of tokens [begin, end), as far as there are any.
  template <typename Take>
  void for_each_run(std::uint64_t begin, std::uint64_t end, const Take& take) const {
    std::uint64_t at = 0;  // of the run, in the sequence
    for (const TokenRun& run : runs_) {
      const std::uint64_t from = std::max(begin, at);
      const std::uint64_t to = std::min(end, at + run.length);
      if (from < to) take(TokenRun{run.first + (from - at), static_cast<std::uint32_t>(to - from)});
      at += run.length;
    }
  }

  friend bool operator==(const TokenSequence&, const TokenSequence&) = default;

  auto state() { return std::tie(runs_, size_); }

 private:
  std::vector<TokenRun> runs_;
  std::size_t size_ = 0;
};

}  // namespace tpsim::kvcache
