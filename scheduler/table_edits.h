// Edits of the request-to-page table since the last batch, in the order the ranks must apply them, and the
// changes of the decode set. They ride on the next ForwardBatch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_run.h"
#include "proto/forward.pb.h"

namespace tpsim::scheduler {

class TableEdits {
 public:
  // Row `row` is cut to `start_page` pages and continues with `runs`.
  void set(std::uint32_t row, std::uint32_t start_page, std::span<const kvcache::PageRun> runs) {
    rows_.push_back(row);
    starts_.push_back(start_page);
    counts_.push_back(static_cast<std::uint32_t>(runs.size()));
    runs_.insert(runs_.end(), runs.begin(), runs.end());
  }
  // A join that is not sent yet is taken back instead: ranks apply leaves before joins.
  void leave(std::uint32_t row) {
    const auto joined = std::find(joins_.begin(), joins_.end(), row);
    if (joined != joins_.end()) {
      joins_.erase(joined);
    } else {
      leaves_.push_back(row);
    }
  }
  void join(std::uint32_t row) { joins_.push_back(row); }

  // Moves everything into `batch`. Keeps capacity.
  void flush(proto::ForwardBatch& batch) {
    const auto move = [](std::vector<std::uint32_t>& from, auto* to) {
      to->Add(from.begin(), from.end());
      from.clear();
    };
    move(rows_, batch.mutable_table_req());
    move(starts_, batch.mutable_table_start_page());
    move(counts_, batch.mutable_table_num_runs());
    for (const kvcache::PageRun& run : runs_) {
      batch.add_run_first_page(run.first);
      batch.add_run_num_pages(run.count);
    }
    runs_.clear();
    move(leaves_, batch.mutable_decode_leave());
    move(joins_, batch.mutable_decode_join());
  }

  auto state() { return std::tie(rows_, starts_, counts_, leaves_, joins_, runs_); }

 private:
  std::vector<std::uint32_t> rows_, starts_, counts_, leaves_, joins_;
  std::vector<kvcache::PageRun> runs_;
};

}  // namespace tpsim::scheduler
