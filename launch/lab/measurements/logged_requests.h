// Requests that a server's batches could have come from, where the requests themselves were not written down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/lab/measurements/measured_load.h"

namespace tpsim::launch {

struct LoggedRequests {
  scheduler::Workload workload;  // each sent when its first prefill was logged, prompts unrelated
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;
};

// A prefill batch's tokens are shared out evenly among its requests; one that fills `chunk` tokens (0: none
// does) ends with a prompt that goes on in the next. Where fewer requests run than before, those that have
// run longest have ended. Time passes with the decode batches, whose lines tell it.
LoggedRequests requests_of_batches(const std::vector<MeasuredBatch>& batches, std::uint64_t chunk,
                                   const std::string& name);

}  // namespace tpsim::launch
