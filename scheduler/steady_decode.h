// Steady decode: the same requests decode step after step, nobody ends, nobody is admitted, and each takes
// the page after its last one. Such a step is formed, and its result processed, without a look at the
// requests: what they would have been told is noted here, and told to all of them (Scheduler::settle())
// before anything else looks at them. The result is that of steps one by one, to the last bit; every step is
// still a pass of its own to the executor and to whoever watches.
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::scheduler {

struct ScheduleBatch;

struct SteadyDecode {
  // Steps at which it settles in any case, so that looking ahead is bounded.
  static constexpr std::uint32_t kMost = 64;
  static constexpr std::uint32_t kFewest = 4;

  // The decode pass that repeats; null: nothing is noted.
  ScheduleBatch* batch = nullptr;
  // Steps that may be formed, and results that may be processed, from when it began.
  std::uint32_t most_formed = 0;
  std::uint32_t most_processed = 0;
  std::uint32_t formed = 0;
  std::uint32_t processed = 0;
  double last_time = 0;  // of the result processed last
  // How many requests need a page in step i, from 0: opens[i % page size], none behind its end.
  std::vector<std::uint32_t> opens;
  // Requests in their order whose last token came at the same time, before the first result.
  struct Group {
    double last_token_time;
    std::uint32_t count;
  };
  std::vector<Group> groups;
};

}  // namespace tpsim::scheduler
