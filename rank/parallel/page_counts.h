// How often each page of a pool is named, in one byte a page: most are named by a few requests, and the pages
// of a prefix that hundreds share carry into a second byte.
#pragma once

#include <cstdint>

#include "kvcache/page_run.h"
#include "proto/base/zeroed_array.h"

namespace tpsim::rank {

class PageCounts {
 public:
  // REQUIRES: no page is ever named more than 65535 times.
  explicit PageCounts(std::uint32_t num_pages) : num_pages_(num_pages) {}

  // One more for each page of `run`. Returns how many of them had none. REQUIRES: the run lies in the pool.
  std::uint32_t add(kvcache::PageRun run);
  // One less. Returns how many have none now. REQUIRES: all have one.
  std::uint32_t remove(kvcache::PageRun run);

  // State of a checkpoint (proto/base/archive.h).
  template <typename Archive>
  void serialize(Archive& archive) {
    for (ZeroedArray<std::uint8_t>* counts : {&low_, &high_}) archive.array(*counts, num_pages_);
  }

 private:
  // Of the pages of `run` whose low byte is `low`, those with a high one. REQUIRES: high_ is there.
  std::uint32_t with_high(kvcache::PageRun run, std::uint8_t low) const;

  std::uint32_t num_pages_;
  ZeroedArray<std::uint8_t> low_;   // made with the first page
  ZeroedArray<std::uint8_t> high_;  // made with the first carry
};

}  // namespace tpsim::rank
