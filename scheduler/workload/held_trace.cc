#include "scheduler/workload/held_trace.h"

#include <utility>

#include "scheduler/workload/arrival_order.h"

namespace tpsim::scheduler {

void HeldTrace::add(TraceRecord&& record) {
  // Most traces are not longer: their requests are moved once. What is not used takes no memory.
  constexpr std::size_t kFirstRoom = 1 << 14;
  if (workload_.requests.empty()) workload_.requests.reserve(kFirstRoom);
  if (record.prompt_length > 0) unique_.push_back({workload_.requests.size(), record.prompt_length});
  workload_.requests.push_back(std::move(record.request));
}

Workload HeldTrace::finish(const TraceStream& stream, bool sort) {
  kvcache::TokenId id = stream.first_unique_id();
  workload_.name = stream.name();
  workload_.format = stream.format();
  workload_.extra_keys = stream.extra_keys();
  workload_.notes = stream.notes();
  for (const UniquePrompt& prompt : unique_) {
    workload_.requests[prompt.request].prompt.append({id, prompt.length});
    id += prompt.length;
  }
  if (sort) {
    sort_by_arrival(workload_);
  } else {
    start_at_zero(workload_);
  }
  TraceStream::check_span(workload_.name, workload_.requests.back().arrival_time);
  return std::move(workload_);
}

}  // namespace tpsim::scheduler
