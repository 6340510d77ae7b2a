// Runs of pages of the KV pool.
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::kvcache {

// `count` consecutive pages: first, first + 1, …
struct PageRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

// Appends `run` to `runs`, merging it into the last run where it continues it.
inline void append_run(std::vector<PageRun>& runs, PageRun run) {
  if (!runs.empty() && runs.back().first + runs.back().count == run.first) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

}  // namespace tpsim::kvcache
