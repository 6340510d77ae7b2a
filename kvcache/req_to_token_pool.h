// The request-to-page table: for each served request a row, the runs of pages that hold its KV.
//
// SGLang's ReqToTokenPool holds one slot per token; here a row holds runs, so its cost follows how the pages
// were allocated and not the length of the sequence.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_run.h"

namespace tpsim::kvcache {

class ReqToTokenPool {
 public:
  // At most `max_rows` rows at a time (0: no limit).
  explicit ReqToTokenPool(std::uint32_t max_rows = 0) : max_rows_(max_rows) {}

  static constexpr std::uint32_t kNoRow = 0xffffffffU;

  // The lowest free row, empty; kNoRow where max_rows are taken.
  std::uint32_t alloc_row();
  // REQUIRES: `row` is taken. Keeps the row's memory for its next user.
  void free_row(std::uint32_t row);

  std::uint32_t num_pages(std::uint32_t row) const { return rows_[row].pages; }
  std::span<const PageRun> runs(std::uint32_t row) const { return rows_[row].runs; }
  // REQUIRES: the row has a page.
  std::uint32_t last_page(std::uint32_t row) const {
    const PageRun& run = rows_[row].runs.back();
    return run.first + run.count - 1;
  }
  // Keeps the first `pages` pages. REQUIRES: pages <= num_pages(row).
  void truncate(std::uint32_t row, std::uint32_t pages);
  // Appends `run`, merging it into the last run where it continues it.
  void append(std::uint32_t row, PageRun run) {
    if (run.count == 0) return;
    append_run(rows_[row].runs, run);
    rows_[row].pages += run.count;
  }
  // Appends the pages after its last one. REQUIRES: the row has a page.
  void extend_last(std::uint32_t row, std::uint32_t pages = 1) {
    rows_[row].runs.back().count += pages;
    rows_[row].pages += pages;
  }
  // Appends the page after its last one where take(page) is true, and returns that. REQUIRES: the row has a
  // page.
  template <typename Take>
  bool extend_last_if(std::uint32_t row, const Take& take) {
    Row& r = rows_[row];
    PageRun& last = r.runs.back();
    if (!take(last.first + last.count)) return false;
    ++last.count;
    ++r.pages;
    return true;
  }
  // Appends pages [first_page, first_page + count) of the row to `out`, merging runs that touch.
  void copy_out(std::uint32_t row, std::uint32_t first_page, std::uint32_t count,
                std::vector<PageRun>& out) const;

  auto state() { return std::tie(rows_, free_); }

 private:
  struct Row {
    std::vector<PageRun> runs;
    std::uint32_t pages = 0;

    auto state() { return std::tie(runs, pages); }
  };
  std::uint32_t max_rows_;
  std::vector<Row> rows_;
  std::vector<std::uint32_t> free_;  // min-heap: the lowest is reused first
};

}  // namespace tpsim::kvcache
