// Runs of pages of the KV pool.
#pragma once

#include <cstdint>

namespace tpsim::kvcache {

// `count` consecutive pages: first, first + 1, …
struct PageRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

}  // namespace tpsim::kvcache
