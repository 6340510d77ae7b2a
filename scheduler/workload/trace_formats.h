// The formats that read_trace knows. Each is one function in its own file.
#pragma once

#include "scheduler/workload/json_record.h"
#include "scheduler/workload/trace_input.h"
#include "scheduler/workload/workload_builder.h"

namespace tpsim::scheduler {

// Each reads to the end of the input, or until the builder is full. JSON formats:
void read_mooncake(JsonRecords& records, WorkloadBuilder& builder);
void read_sharegpt(JsonRecords& records, WorkloadBuilder& builder);
void read_tpsim(JsonRecords& records, WorkloadBuilder& builder);
// CSV formats:
void read_azure(TraceInput& input, WorkloadBuilder& builder);
void read_burstgpt(TraceInput& input, WorkloadBuilder& builder);

}  // namespace tpsim::scheduler
