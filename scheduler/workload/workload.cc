#include "scheduler/workload/workload.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace tpsim::scheduler {

void start_at_zero(Workload& workload) {
  const double first = workload.requests.front().arrival_time;
  if (first == 0) return;
  for (WorkloadRequest& request : workload.requests) request.arrival_time -= first;
}

void sort_by_arrival(Workload& workload) {
  if (workload.requests.empty()) return;
  std::ranges::stable_sort(workload.requests, {}, &WorkloadRequest::arrival_time);
  start_at_zero(workload);
  std::unordered_map<std::uint32_t, std::uint32_t> sessions;
  std::unordered_map<std::uint32_t, std::uint32_t> namespaces;
  std::vector<std::string> extra_keys = {""};
  for (WorkloadRequest& request : workload.requests) {
    if (request.session != 0) {
      const auto next = static_cast<std::uint32_t>(sessions.size() + 1);
      request.session = sessions.try_emplace(request.session, next).first->second;
    }
    if (request.extra_key != 0) {
      const auto next = static_cast<std::uint32_t>(extra_keys.size());
      const auto [entry, is_new] = namespaces.try_emplace(request.extra_key, next);
      if (is_new) extra_keys.push_back(std::move(workload.extra_keys[request.extra_key]));
      request.extra_key = entry->second;
    }
  }
  workload.extra_keys = std::move(extra_keys);
}

}  // namespace tpsim::scheduler
