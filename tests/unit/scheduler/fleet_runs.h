// What tests of several replicas serve, and what they keep of it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "scheduler/config.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"
#include "tests/unit/scheduler/random_requests.h"

namespace tpsim::scheduler {

inline SchedulerConfig pool_of(std::uint64_t tokens) {
  SchedulerConfig config;
  config.max_total_num_tokens = tokens;
  config.max_running_requests = 20;
  config.context_length = 50000;
  config.check_invariants = true;
  return config;
}

// `gap_ms`: below which requests follow each other.
inline Workload random_workload(std::uint64_t seed, std::size_t requests, std::uint64_t gap_ms = 40) {
  std::mt19937_64 random(seed);
  Workload workload;
  kvcache::TokenId fresh = 100;
  double time = 0;
  while (workload.requests.size() < requests) {
    WorkloadRequest r;
    time += static_cast<double>(random() % gap_ms) * 1e-3;
    r.arrival_time = time;
    draw_prompt(random, workload.requests, 2000, fresh, r);
    r.max_new_tokens = static_cast<std::uint32_t>(1 + random() % 20);
    workload.requests.push_back(std::move(r));
  }
  return workload;
}

class KeptRequests : public NoRecords {
 public:
  void on_request(const RequestRecord& record) override {
    EXPECT_TRUE(requests.emplace(record.id, record).second) << record.id;
  }
  std::map<std::uint64_t, RequestRecord> requests;
};

}  // namespace tpsim::scheduler
