// Runs of pages of the KV pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tpsim::kvcache {

// `count` consecutive pages: first, first + 1, …
struct PageRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

// Appends `run` to `runs`, merging it into the last run where it continues it.
template <typename Runs>
void append_run(Runs& runs, PageRun run) {
  if (!runs.empty() && runs.back().first + runs.back().count == run.first) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

// Appends items [first, first + count) of what `runs` name, as far as they name that many.
template <typename Runs>
void append_slice(std::span<const PageRun> runs, std::uint32_t first, std::uint32_t count, Runs& out) {
  for (const PageRun& run : runs) {
    if (count == 0) return;
    if (first >= run.count) {
      first -= run.count;
      continue;
    }
    const std::uint32_t take = std::min(count, run.count - first);
    append_run(out, {run.first + first, take});
    first = 0;
    count -= take;
  }
}

}  // namespace tpsim::kvcache
