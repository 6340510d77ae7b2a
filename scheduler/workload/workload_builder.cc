#include "scheduler/workload/workload_builder.h"

#include <algorithm>
#include <utility>

#include "proto/base/stop_flag.h"

namespace tpsim::scheduler {
namespace {

// More requests than any trace has; their numbers are kept in 32 bits elsewhere.
constexpr std::size_t kMaxRequests = 1'000'000'000;
// 300 years.
constexpr double kMaxSeconds = 1e10;

void start_at_zero(Workload& workload) {
  const double first = workload.requests.front().arrival_time;
  if (first == 0) return;
  for (WorkloadRequest& request : workload.requests) request.arrival_time -= first;
}

}  // namespace

WorkloadBuilder::WorkloadBuilder(std::string name, std::string format, const ReadOptions& options)
    : limit_(options.num_prompts == 0 ? kMaxRequests : options.num_prompts), sort_(options.sort) {
  workload_.name = std::move(name);
  workload_.format = std::move(format);
}

void WorkloadBuilder::add(const Place& place, WorkloadRequest&& request) {
  StopFlag::throw_if_requested();
  const double time = request.arrival_time;
  if (time > kMaxSeconds) {
    place.fail("the request arrives at {} seconds; times are at most {:g} seconds", time, kMaxSeconds);
  }
  if (request.think_time.value_or(0) > kMaxSeconds) {
    place.fail("think_time is {} seconds; it is at most {:g} seconds", *request.think_time, kMaxSeconds);
  }
  if (time < last_arrival_ && !sort_) {
    place.fail(
        "the request arrives {:g} seconds before the one in front of it; put the file in order with `tpsim "
        "trace convert --sort`",
        last_arrival_ - time);
  }
  last_arrival_ = time;
  for (const kvcache::TokenSequence* sequence : {&request.prompt, &request.output}) {
    for (const kvcache::TokenRun& run : sequence->runs()) id_end_ = std::max(id_end_, run.first + run.length);
  }
  workload_.requests.push_back(std::move(request));
}

void WorkloadBuilder::add_unique(const Place& place, WorkloadRequest&& request, std::uint32_t prompt_length) {
  unique_tokens_ += prompt_length;
  if (unique_tokens_ > kGeneratedTokenBase) {
    place.fail("the prompts up to here have more than 2^48 tokens together; give a shorter trace");
  }
  unique_.push_back({workload_.requests.size(), prompt_length});
  add(place, std::move(request));
}

std::uint32_t WorkloadBuilder::session(std::string_view id) {
  if (id.empty()) return 0;
  const auto next = static_cast<std::uint32_t>(sessions_.size() + 1);
  return sessions_.try_emplace(std::string(id), next).first->second;
}

std::uint32_t WorkloadBuilder::extra_key(std::string_view key) {
  if (key.empty()) return 0;
  const auto next = static_cast<std::uint32_t>(workload_.extra_keys.size());
  const auto [entry, is_new] = extra_keys_.try_emplace(std::string(key), next);
  if (is_new) workload_.extra_keys.emplace_back(key);
  return entry->second;
}

Workload WorkloadBuilder::finish() {
  if (workload_.requests.empty()) {
    throw_user_error("{}: the trace has no requests; give a file with at least one", workload_.name);
  }
  if (kGeneratedTokenBase - id_end_ < unique_tokens_) {
    throw_user_error("{}: ids up to {} leave no room for {} tokens of prompts given by length; use lower ids",
                     workload_.name, id_end_ - 1, unique_tokens_);
  }
  for (const UniquePrompt& prompt : unique_) {
    workload_.requests[prompt.request].prompt.append({id_end_, prompt.length});
    id_end_ += prompt.length;
  }
  if (sort_) {
    sort_by_arrival(workload_);
  } else {
    start_at_zero(workload_);
  }
  if (workload_.requests.back().arrival_time > kMaxSeconds) {
    throw_user_error("{}: the trace lasts {} seconds; {:g} are the most", workload_.name,
                     workload_.requests.back().arrival_time, kMaxSeconds);
  }
  return std::move(workload_);
}

void sort_by_arrival(Workload& workload) {
  if (workload.requests.empty()) return;
  std::stable_sort(
      workload.requests.begin(), workload.requests.end(),
      [](const WorkloadRequest& a, const WorkloadRequest& b) { return a.arrival_time < b.arrival_time; });
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
