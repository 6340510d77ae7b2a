#include "scheduler/table_edits.h"

namespace tpsim::scheduler {

void TableEdits::flush(proto::ForwardBatch& batch) {
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

}  // namespace tpsim::scheduler
