#include "scheduler/warm_up.h"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace tpsim::scheduler {

Workload warm_up_workload(const LoadConfig& offer, const StreamedWorkload& workload) {
  constexpr std::uint32_t kMostTokens = 32;
  const auto shortened = [](WorkloadRequest request, std::uint32_t tokens) {
    request.session = 0;
    request.max_new_tokens = std::min(request.max_new_tokens, tokens);
    // An answer may end earlier by itself.
    if (request.output.size() > request.max_new_tokens) request.output.truncate(request.max_new_tokens);
    return request;
  };
  Workload before;
  const auto next = workload.read();
  for (const std::uint32_t tokens : offer.prompts_before) {
    const std::shared_ptr<const WorkloadRequest> request = next();
    if (request == nullptr) break;
    before.requests.push_back(shortened(*request, 1));
    if (before.requests.back().prompt.size() > tokens) before.requests.back().prompt.truncate(tokens);
  }
  before.requests.insert(before.requests.end(), offer.warmup_requests,
                         shortened(*workload.read()(), kMostTokens));
  return before;
}

}  // namespace tpsim::scheduler
