// What `tpsim trace inspect` says of a workload.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Percentiles are interpolated linearly between order statistics, as numpy does.
struct Distribution {
  double mean = 0;
  double p1 = 0, p5 = 0, p25 = 0, p50 = 0, p75 = 0, p90 = 0, p95 = 0, p99 = 0;
  double max = 0;
};

Distribution describe(std::vector<double> values);  // all 0 for no values

// Prompt tokens that an unlimited cache would have found, if every request had finished before the next one
// came. As in SGLang a match never covers a whole prompt, what is stored is the prompt and the answer but for
// its last token, and only whole pages match.
struct BestHitRate {
  std::uint32_t page_size = 1;
  std::uint64_t hit_tokens = 0;
  double hit_rate = 0;  // of all prompt tokens
};

struct WorkloadStatistics {
  std::string name;
  std::string format;
  std::vector<std::string> notes;
  std::uint64_t requests = 0;
  std::uint64_t sessions = 0;
  std::uint64_t turns = 0;        // requests that belong to a session
  std::uint64_t named_think = 0;  // of them, later turns with a think time
  std::uint64_t namespaces = 0;   // distinct extra_keys, none included
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t prompt_runs = 0;  // what the prompts cost to hold and to match
  Distribution input_length;
  Distribution output_length;
  Distribution session_turns;           // turns of a session
  Distribution turn_gap;                // seconds between the arrivals of two turns that follow each other
  Distribution think_time;              // seconds, of the later turns that name it
  double duration = 0;                  // seconds from the first arrival to the last
  double request_rate = 0;              // requests per second over that time; 0 where all arrive at once
  double burstiness = 0;                // coefficient of variation of the gaps between arrivals; 1 = Poisson
  double interval = 0;                  // seconds of one entry below
  std::vector<std::uint64_t> arrivals;  // per interval
  std::vector<BestHitRate> best_hit_rates;
};

// Reads the workload a few times, and once for each page size. Holds 16 bytes for each request, and for each
// page size what an unlimited cache would.
// REQUIRES: `workload` has requests; intervals > 0; page sizes > 0.
WorkloadStatistics describe(const StreamedWorkload& workload, std::span<const std::uint32_t> page_sizes,
                            std::uint32_t intervals);

}  // namespace tpsim::scheduler
