#include "scheduler/table_edits.h"

namespace tpsim::scheduler {

void TableEdits::flush(proto::ForwardBatch& batch) {
  if (!rows_.empty()) {
    batch.mutable_table_req()->Add(rows_.begin(), rows_.end());
    batch.mutable_table_start_page()->Add(starts_.begin(), starts_.end());
    batch.mutable_table_num_runs()->Add(counts_.begin(), counts_.end());
    for (const kvcache::PageRun& run : runs_) {
      batch.add_run_first_page(run.first);
      batch.add_run_num_pages(run.count);
    }
    rows_.clear();
    starts_.clear();
    counts_.clear();
    runs_.clear();
  }
  if (!leaves_.empty()) {
    batch.mutable_decode_leave()->Add(leaves_.begin(), leaves_.end());
    leaves_.clear();
  }
  if (!joins_.empty()) {
    batch.mutable_decode_join()->Add(joins_.begin(), joins_.end());
    joins_.clear();
  }
}

}  // namespace tpsim::scheduler
