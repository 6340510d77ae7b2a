#include "scheduler/workload/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

#include "kvcache/radix_cache.h"
#include "proto/base/stop_flag.h"

namespace tpsim::scheduler {
namespace {

double percentile(const std::vector<double>& sorted, double percent) {
  const double position = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  return sorted[below] + (sorted[above] - sorted[below]) * share;
}

// Calls `look` with every request of `workload`, in order.
template <typename Look>
void for_each(const StreamedWorkload& workload, Look look) {
  const RequestReader next = workload.read();
  while (const std::shared_ptr<const WorkloadRequest> request = next()) {
    StopFlag::throw_if_requested();
    look(*request);
  }
}

BestHitRate best_hit_rate(const StreamedWorkload& workload, std::uint32_t page_size) {
  BestHitRate best{page_size, 0, 0};
  std::uint64_t tokens = 0;
  kvcache::RadixCache cache({.page_size = page_size}, /*allocator=*/nullptr, /*pool=*/nullptr);
  kvcache::TokenSequence stored;
  for_each(workload, [&](const WorkloadRequest& request) {
    tokens += request.prompt.size();
    const auto length = static_cast<std::uint32_t>(request.prompt.size());
    best.hit_tokens += cache.match_prefix(request.prompt, length - 1, request.extra_key).matched_tokens;
    // Where the answer's ids are not known, no later prompt can contain them.
    stored = request.prompt;
    if (!request.output.empty()) {
      stored.append(request.output);
      stored.truncate(stored.size() - 1);
    }
    cache.insert(stored, static_cast<std::uint32_t>(stored.size()), /*pages=*/{}, /*priority=*/0,
                 request.extra_key);
  });
  best.hit_rate = static_cast<double>(best.hit_tokens) / static_cast<double>(tokens);
  return best;
}

void describe_sessions(const StreamedWorkload& workload, WorkloadStatistics& result) {
  struct Session {
    std::uint64_t turns = 0;
    double last_arrival = 0;
  };
  std::vector<Session> sessions;  // numbered from 1 without holes
  std::vector<double> gaps;
  std::vector<double> think_times;
  for_each(workload, [&](const WorkloadRequest& request) {
    if (request.session == 0) return;
    if (request.session > sessions.size()) sessions.resize(request.session);
    Session& session = sessions[request.session - 1];
    if (session.turns > 0) {
      gaps.push_back(request.arrival_time - session.last_arrival);
      if (request.think_time) think_times.push_back(*request.think_time);
    }
    ++session.turns;
    session.last_arrival = request.arrival_time;
    ++result.turns;
  });
  std::vector<double> turns;
  for (const Session& session : sessions) {
    if (session.turns > 0) turns.push_back(static_cast<double>(session.turns));
  }
  result.sessions = turns.size();
  result.named_think = think_times.size();
  result.session_turns = describe(std::move(turns));
  result.turn_gap = describe(std::move(gaps));
  result.think_time = describe(std::move(think_times));
}

}  // namespace

Distribution describe(std::vector<double> values) {
  Distribution result;
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  result.mean = sum / static_cast<double>(values.size());
  result.p1 = percentile(values, 1);
  result.p5 = percentile(values, 5);
  result.p25 = percentile(values, 25);
  result.p50 = percentile(values, 50);
  result.p75 = percentile(values, 75);
  result.p90 = percentile(values, 90);
  result.p95 = percentile(values, 95);
  result.p99 = percentile(values, 99);
  result.max = values.back();
  return result;
}

WorkloadStatistics describe(const StreamedWorkload& workload, std::span<const std::uint32_t> page_sizes,
                            std::uint32_t intervals) {
  const WorkloadOutline& outline = workload.outline();
  WorkloadStatistics result;
  result.name = outline.name;
  result.format = outline.format;
  result.notes = outline.notes;
  result.requests = outline.requests;
  result.duration = outline.last_arrival - outline.first_arrival;
  if (result.duration > 0) {
    result.request_rate = static_cast<double>(result.requests) / result.duration;
    result.interval = result.duration / intervals;
    result.arrivals.resize(intervals);
  }
  std::vector<double> inputs;
  std::vector<double> outputs;
  std::vector<bool> namespaces;
  const double gaps = static_cast<double>(result.requests) - 1;
  const double mean_gap = gaps > 0 ? result.duration / gaps : 0;
  double squares = 0;
  double last = outline.first_arrival;
  for_each(workload, [&](const WorkloadRequest& request) {
    const double off = request.arrival_time - last - mean_gap;
    last = request.arrival_time;
    if (!inputs.empty()) squares += off * off;
    inputs.push_back(static_cast<double>(request.prompt.size()));
    outputs.push_back(request.max_new_tokens);
    result.input_tokens += request.prompt.size();
    result.output_tokens += request.max_new_tokens;
    result.prompt_runs += request.prompt.runs().size();
    if (request.extra_key >= namespaces.size()) namespaces.resize(request.extra_key + std::size_t{1});
    namespaces[request.extra_key] = true;
    if (result.arrivals.empty()) return;
    const double since = request.arrival_time - outline.first_arrival;
    const auto at = static_cast<std::size_t>(since / result.duration * intervals);
    ++result.arrivals[std::min<std::size_t>(at, intervals - 1)];
  });
  describe_sessions(workload, result);
  result.namespaces = static_cast<std::uint64_t>(std::count(namespaces.begin(), namespaces.end(), true));
  result.input_length = describe(std::move(inputs));
  result.output_length = describe(std::move(outputs));
  // Standard deviation over mean of the gaps; 0 where there are none or all are 0.
  if (mean_gap > 0) result.burstiness = std::sqrt(squares / gaps) / mean_gap;
  for (const std::uint32_t page_size : page_sizes) {
    result.best_hit_rates.push_back(best_hit_rate(workload, page_size));
  }
  return result;
}

}  // namespace tpsim::scheduler
