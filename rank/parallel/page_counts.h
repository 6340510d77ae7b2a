// How often each page of a pool is named. Long runs of pages come and go with every request, so 64 neighbours
// are a block: a run counts once for each block that it covers, and page by page at its two ends only.
#pragma once

#include <cstdint>

#include "kvcache/pools/page_run.h"
#include "proto/base/zeroed_array.h"

namespace tpsim::rank {

// Invariants: a page is named as often as its own count and its block's say together; named_ of a block is
// the number of its pages whose own count is not 0.
class PageCounts {
 public:
  // REQUIRES: no page is ever named more than 65535 times.
  explicit PageCounts(std::uint32_t num_pages) : num_pages_(num_pages) {}

  // One more for each page of `run`. Returns how many of them had none. REQUIRES: the run lies in the pool.
  std::uint32_t add(kvcache::PageRun run);
  // One less. Returns how many have none now. REQUIRES: all have one.
  std::uint32_t remove(kvcache::PageRun run);

  template <typename Archive>
  void serialize(Archive& archive) {
    const std::uint32_t blocks = num_pages_ / kBlock + 1;
    archive.array(pages_, num_pages_);
    archive.array(blocks_, blocks);
    archive.array(named_, blocks);
  }

 private:
  static constexpr std::uint32_t kBlock = 64;

  std::uint32_t add_pages(std::uint32_t first, std::uint32_t count);
  std::uint32_t add_blocks(std::uint32_t first, std::uint32_t count);
  std::uint32_t remove_pages(std::uint32_t first, std::uint32_t count);
  std::uint32_t remove_blocks(std::uint32_t first, std::uint32_t count);

  std::uint32_t num_pages_;
  // Made with the first page.
  ZeroedArray<std::uint16_t> pages_;
  ZeroedArray<std::uint16_t> blocks_;
  ZeroedArray<std::uint16_t> named_;
};

}  // namespace tpsim::rank
