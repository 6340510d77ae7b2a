// The formats of traces. Each is a reader in its own file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// One request as a trace has it.
struct TraceRecord {
  Place place;
  // Its arrival_time may count from any zero; session and extra_key are 0. Lengths are within
  // kMaxRequestTokens, ids below kGeneratedTokenBase.
  WorkloadRequest request;
  // Of whose prompt only the length is known: that; otherwise 0, and the prompt has tokens.
  std::uint32_t prompt_length = 0;
  // Names of its conversation, its cache namespace and its model; "": none.
  std::string session, extra_key, model;
};

class TraceFormat {
 public:
  virtual ~TraceFormat() = default;
  // Puts the next request into `record`, which is as constructed; false at the end of the trace. Throws
  // UserError "FILE:LINE: what is wrong; what would be right".
  virtual bool next(TraceRecord& record) = 0;
  // What was left out so far, one sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
};

// REQUIRES of all: what they read from outlives them. JSON formats:
std::unique_ptr<TraceFormat> open_mooncake(JsonRecords& records, const ReadOptions& options);
std::unique_ptr<TraceFormat> open_sharegpt(JsonRecords& records, const ReadOptions& options);
std::unique_ptr<TraceFormat> open_tpsim(JsonRecords& records, const ReadOptions& options);
// CSV formats:
std::unique_ptr<TraceFormat> open_azure(TraceInput& input);
std::unique_ptr<TraceFormat> open_burstgpt(TraceInput& input);

}  // namespace tpsim::scheduler
