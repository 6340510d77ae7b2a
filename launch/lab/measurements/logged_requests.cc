#include "launch/lab/measurements/logged_requests.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>

namespace tpsim::launch {
namespace {

constexpr std::uint32_t kMostRequests = 1 << 20;   // of a batch
constexpr std::uint64_t kMostTokens = 1ULL << 30;  // of a prompt

struct Logged {
  double arrival = 0;
  std::uint64_t prompt = 0;
  double answer = 1;  // the prefill brings the first
};

}  // namespace

LoggedRequests requests_of_batches(const std::vector<MeasuredBatch>& batches, std::uint64_t chunk,
                                   const std::string& name) {
  std::vector<Logged> requests;
  std::deque<std::size_t> running;
  bool goes_on = false;  // the last request's prompt
  bool decoded = false;
  double now = 0;
  LoggedRequests out;
  for (const MeasuredBatch& batch : batches) {
    if (batch.decode) {
      const double kept = std::max(1.0, batch.accept_len);
      // The first line's time began before the load.
      if (decoded && batch.tokens_per_second > 0) now += batch.running * kept / batch.tokens_per_second;
      decoded = true;
      while (running.size() > batch.running) running.pop_front();
      for (const std::size_t request : running) requests[request].answer += kept;
      continue;
    }
    const std::uint32_t sequences = std::min(batch.new_seqs, kMostRequests);
    if (sequences == 0) continue;
    const std::uint64_t share = batch.new_tokens / sequences;
    out.prompt_tokens += batch.new_tokens + batch.cached_tokens;
    out.cached_tokens += batch.cached_tokens;
    for (std::uint32_t i = 0; i < sequences; ++i) {
      if (i == 0 && goes_on) {
        requests.back().prompt += share;
        continue;
      }
      requests.push_back({now, std::max<std::uint64_t>(1, share), 1});
      running.push_back(requests.size() - 1);
    }
    goes_on = chunk > 0 && batch.new_tokens >= chunk;
  }
  out.workload.name = name;
  out.workload.format = "measured";
  kvcache::TokenId next = 0;
  for (const Logged& logged : requests) {
    scheduler::WorkloadRequest request;
    request.arrival_time = logged.arrival;
    const auto tokens = static_cast<std::uint32_t>(std::min(logged.prompt, kMostTokens));
    request.prompt.append({next, tokens});
    next += tokens + 1;  // two prompts do not become one run
    request.max_new_tokens =
        static_cast<std::uint32_t>(std::clamp(std::round(logged.answer), 1.0, double{kMostTokens}));
    out.workload.requests.push_back(std::move(request));
  }
  return out;
}

}  // namespace tpsim::launch
