// The requests of a measured load: the figures that they come to, and how `tpsim run` offers them again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"

namespace tpsim::launch {

// Times in seconds of one clock.
struct MeasuredRequest {
  std::uint64_t request = 0;  // its number in the load
  double sent_s = 0;
  double first_token_s = 0;
  double last_token_s = 0;
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t cached_tokens = 0;

  friend bool operator==(const MeasuredRequest&, const MeasuredRequest&) = default;
};

class CsvRows;
// The row that `cells` is at: columns request, sent_s, input_tokens, output_tokens, cached_tokens, and
// `first` and `last` for its first and last token. Throws UserError for a cell that is none of these, and for
// times that run backwards.
MeasuredRequest read_request(const CsvRows& cells, std::string_view first = "first_s",
                             std::string_view last = "last_s");

// Throws UserError at `place` for times that run backwards.
void check_times(const MeasuredRequest& request, const scheduler::Place& place);

// The figures of requests, one after the other: when each was sent, its first and last token, seconds of one
// clock, and its answer's tokens.
class FigureSums {
 public:
  void add(double sent, double first_token, double last_token, std::uint64_t output_tokens);
  MeasuredFigures figures() const;  // empty of no requests

 private:
  std::uint64_t requests_ = 0, tokens_ = 0;
  double ttft_ = 0, e2e_ = 0, spans_ = 0, begin_ = 0, end_ = 0;
};
MeasuredFigures figures_of(const std::vector<MeasuredRequest>& requests);

// Prompt tokens that were found cached.
std::uint64_t cached_of(const std::vector<MeasuredRequest>& requests);
// Tokens of the longest answer.
std::uint32_t longest_answer(const std::vector<MeasuredRequest>& requests);

// Prompts unrelated to each other, in the order of `requests`, each at its time; `timed`: else all at 0.
scheduler::Workload replay(const std::vector<MeasuredRequest>& requests, bool timed,
                           const MeasuredLoad& load);

// "closed" of "closed:1024:256:16:48".
std::string load_kind(std::string_view load);

// Makes `load` offer `requests`: adds flags, and sets its workload or why it has none.
//   closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS  the benchmark's closed loop, of equal lengths
//   burst:INPUT:OUTPUT:PROMPTS               all at once
//   mooncake:FROM_S:TO_S:SCALE               a slice of the trace; its hash_ids say what prompts share
//   any other (azure:FROM_S:TO_S:SCALE)      the requests themselves at the times they were sent, prompts
//                                            unrelated
// Clients of them all sent token ids. Throws UserError at `place` where the name is malformed.
void offer_requests(const std::vector<MeasuredRequest>& requests, const MeasurementFile& file,
                    const scheduler::Place& place, MeasuredLoad& load);
// Of loads in the order in which their servers, new ones, served them: what each server had served before,
// that is, compiled (rank/llm/fresh_kernels.h).
void expect_compiles(std::vector<MeasuredLoad>& loads);
// Of loads of the same server and name, which were repeated, the last counts, in the first one's place: a new
// server is slower the first times, for kernels are loaded, and found, as they are needed.
void keep_last_of_each(std::vector<MeasuredLoad>& loads);
// A load of which only the name is known, and must tell everything: closed and burst.
void offer_by_name(const scheduler::Place& place, MeasuredLoad& load);

}  // namespace tpsim::launch
