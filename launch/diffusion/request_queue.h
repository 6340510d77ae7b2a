// The queue of SGLang's diffusion scheduler (runtime/managers/scheduler.py and scheduler_client.py of
// 0.5.23): replicas in turn, each serving its requests in the order of arrival, one at a time or several of
// equal shape together.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

struct QueuedRequest {
  double arrival = 0;  // seconds; where the client bounds its requests in flight: the earliest
  rank::GenerationRequest shape;
};

struct QueueRules {
  std::uint32_t replicas = 1;
  std::uint32_t max_outputs = 1;      // --batching-max-size
  double delay_seconds = 0;           // --batching-delay-ms
  bool batches = true;                // the pipeline's requests may be merged
  std::uint32_t max_concurrency = 0;  // requests in flight; 0: any number
};

struct ServedRequest {
  double arrival = 0, start = 0, end = 0;  // seconds
  std::uint32_t replica = 0;
  std::uint32_t batch = 1;  // requests that ran together
};

// `seconds` of a batch, a request whose outputs are those of all. In the order of `requests`, whose arrivals
// ascend.
std::vector<ServedRequest> serve_queue(const std::vector<QueuedRequest>& requests, const QueueRules& rules,
                                       const std::function<double(const rank::GenerationRequest&)>& seconds);

// Whether two requests have equal shapes but for the number of outputs.
bool alike(const rank::GenerationRequest& a, const rank::GenerationRequest& b);

}  // namespace tpsim::launch
