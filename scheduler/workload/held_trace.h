// A trace whose requests are held in memory while it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/workload/trace_formats.h"
#include "scheduler/workload/trace_stream.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

class HeldTrace {
 public:
  void add(TraceRecord&& record);
  std::size_t size() const { return workload_.requests.size(); }
  // Names the tokens of prompts that are known by their length and moves the first arrival to 0; `sort`: puts
  // the requests in order. REQUIRES: every request of `stream` was added, and nothing is called afterwards.
  // Throws UserError as TraceStream::first_unique_id() and check_span() do.
  Workload finish(const TraceStream& stream, bool sort);

 private:
  struct UniquePrompt {
    std::size_t request;
    std::uint32_t length;
  };
  std::vector<UniquePrompt> unique_;
  Workload workload_;
};

}  // namespace tpsim::scheduler
