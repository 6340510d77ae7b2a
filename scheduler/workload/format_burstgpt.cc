// The BurstGPT traces (arXiv 2401.17644): CSV with the columns
//
//   Timestamp        seconds
//   Request tokens   prompt tokens
//   Response tokens  generated tokens; 0 marks a request that failed, and such a line is left out
//   Session ID       conversation (newer releases only)
//
// and Model, Total tokens, Log Type and Elapsed time, which do not matter here. Nothing tells which prompts
// share a prefix, so none do.
#include <array>
#include <utility>

#include "scheduler/workload/csv_record.h"
#include "scheduler/workload/trace_formats.h"

namespace tpsim::scheduler {

void read_burstgpt(TraceInput& input, WorkloadBuilder& builder) {
  enum { kTimestamp, kRequestTokens, kResponseTokens, kSessionId };
  constexpr std::array<std::string_view, 4> kColumns = {"Timestamp", "Request tokens", "Response tokens",
                                                        "Session ID"};

  std::string_view line;
  if (!input.next_filled_line(line)) return;
  CsvRecord record(line, input.place(), kColumns, kSessionId);
  std::uint64_t failed = 0;
  while (!builder.full() && input.next_filled_line(line)) {
    const Place place = input.place();
    record.parse(line, place);
    WorkloadRequest request;
    request.arrival_time = record.number(kTimestamp);
    const std::uint64_t response = record.count(kResponseTokens, 0, kMaxRequestTokens);
    const std::uint64_t length = record.count(kRequestTokens, response == 0 ? 0 : 1, kMaxRequestTokens);
    if (response == 0) {
      ++failed;
      continue;
    }
    request.max_new_tokens = static_cast<std::uint32_t>(response);
    if (record.has_column(kSessionId)) request.session = builder.session(record.text(kSessionId));
    builder.add_unique(place, std::move(request), static_cast<std::uint32_t>(length));
  }
  if (failed > 0) {
    builder.add_note(fmt::format("{} failed requests (Response tokens 0) were left out", failed));
  }
}

}  // namespace tpsim::scheduler
