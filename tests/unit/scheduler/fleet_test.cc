// Several replicas behind a router: each request is served once, and nothing else changes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "scheduler/engine.h"
#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/fleet_messages.h"
#include "tests/unit/scheduler/fleet_runs.h"

namespace tpsim::scheduler::fleet_test {

struct Served {
  proto::RunReport report;
  std::map<std::uint64_t, RequestRecord> requests;
};

proto::RunReport serve(const Workload& workload, std::size_t replicas, RouterPolicy policy,
                       RunObserver& observer, std::uint32_t threads, Peers* peers = nullptr,
                       std::uint32_t warmup_requests = 0) {
  std::vector<std::unique_ptr<FakeExecutor>> executors;
  const SchedulerConfig config = pool_of(2500);
  Fleet fleet;
  fleet.threads = threads;
  fleet.peers = peers;
  for (std::size_t i = 0; i < replicas; ++i)
    fleet.servers.push_back({&config, executors.emplace_back(std::make_unique<FakeExecutor>()).get()});
  LoadConfig load;
  load.router.policy = policy;
  load.warmup_requests = warmup_requests;
  return run_workload(fleet, load, WorkloadView(workload), observer);
}

Served serve(const Workload& workload, std::size_t replicas, RouterPolicy policy) {
  KeptRequests kept;
  Served served;
  served.report = serve(workload, replicas, policy, kept, /*threads=*/1);
  served.requests = std::move(kept.requests);
  return served;
}

// Everything that a run tells, in its order.
using Records = std::vector<std::string>;
class ToldRecords : public NoRecords {
 public:
  void on_request(const RequestRecord& r) override {
    told.push_back(fmt::format("{} {} {} {} {} {} {} {}", r.id, static_cast<int>(r.state), r.replica,
                               r.cached_tokens, r.first_scheduled_time, r.first_token_time, r.finish_time,
                               r.interruptions.size()));
    for (const Interruption& i : r.interruptions)
      told.back() += fmt::format(" {} {}", i.retracted, i.readmitted);
  }
  void on_step(const StepRecord& s) override {
    told.push_back(fmt::format("{} {} {} {} {} {} {} {}", s.replica, s.sequence_number, s.start_time,
                               s.step_time, s.extend_tokens, s.decode_requests, s.waiting,
                               s.pools[kvcache::kKvPool].usage()));
  }
  bool wants_steps() const override { return true; }
  Records told;
};
// What it sums up, alone.
class Sums : public NoRecords {
 public:
  StepTally* tally_of(std::uint32_t replica) override {
    while (replicas.size() <= replica) replicas.emplace_back();
    return &replicas[replica];
  }
  struct OfReplica final : StepTally {
    void on_step(const StepRecord& record) override { seconds += record.step_time; }
    void write(StateWriter& out) override { out(seconds); }
    void read(StateReader& in) override { in(seconds); }
    double seconds = 0;
  };
  std::deque<OfReplica> replicas;
};
Records sums(const Workload& workload, std::size_t replicas, RouterPolicy policy, std::uint32_t threads,
             Peers* peers = nullptr) {
  Sums sums;
  Records all = {
      serve(workload, replicas, policy, sums, threads, peers, /*warmup_requests=*/3).SerializeAsString()};
  for (const Sums::OfReplica& each : sums.replicas) all.push_back(fmt::format("{}", each.seconds));
  return all;
}
Records records(const Workload& workload, std::size_t replicas, RouterPolicy policy, std::uint32_t threads,
                Peers* peers = nullptr) {
  if (peers != nullptr && !peers->tells_steps) return sums(workload, replicas, policy, threads, peers);
  ToldRecords told;
  const proto::RunReport report =
      serve(workload, replicas, policy, told, threads, peers, /*warmup_requests=*/3);
  told.told.push_back(report.SerializeAsString());
  return std::move(told.told);
}

TEST(Fleet, EveryRequestIsServedOnceByOneReplica) {
  for (const RouterPolicy policy :
       {RouterPolicy::kRandom, RouterPolicy::kRoundRobin, RouterPolicy::kPowerOfTwo,
        RouterPolicy::kCacheAware, RouterPolicy::kTotalRequests, RouterPolicy::kTotalTokens}) {
    for (const std::size_t replicas : {2, 3, 7}) {
      const Workload workload = random_workload(replicas, 200);
      const Served served = serve(workload, replicas, policy);
      ASSERT_EQ(served.requests.size(), 200U);
      ASSERT_EQ(served.report.completed() + served.report.failed(), 200U);
      ASSERT_EQ(served.report.replicas_size(), static_cast<int>(replicas));
      std::vector<std::uint64_t> requests(replicas);
      for (const auto& [id, record] : served.requests) ++requests.at(record.replica);
      std::uint64_t input = 0, output = 0, retractions = 0, steps = 0;
      for (const proto::ReplicaReport& replica : served.report.replicas()) {
        EXPECT_EQ(replica.requests(), requests[replica.replica()]);
        input += replica.input_tokens();
        output += replica.output_tokens();
        retractions += replica.retractions();
        steps += replica.steps();
      }
      EXPECT_EQ(input, served.report.total_input_tokens());
      EXPECT_EQ(output, served.report.total_output_tokens());
      EXPECT_EQ(retractions, served.report.retractions());
      EXPECT_EQ(steps, served.report.steps());
      EXPECT_EQ(served.report.kv_pool_tokens(), replicas * 2500);
      EXPECT_EQ(serve(workload, replicas, policy).report.SerializeAsString(),
                served.report.SerializeAsString());
    }
  }
}

// Behind round_robin replica k serves every n-th request from k on, as alone.
TEST(Fleet, ReplicasShareNothing) {
  const Workload all = random_workload(5, 120);
  const Served served = serve(all, 2, RouterPolicy::kRoundRobin);
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    Workload share;
    for (std::size_t i = replica; i < all.requests.size(); i += 2) share.requests.push_back(all.requests[i]);
    const Served alone = serve(share, 1, RouterPolicy::kRoundRobin);
    for (const auto& [id, record] : alone.requests) {
      const RequestRecord& beside = served.requests.at(2 * id + replica);
      EXPECT_EQ(beside.replica, replica);
      EXPECT_EQ(beside.cached_tokens, record.cached_tokens);
      EXPECT_DOUBLE_EQ(beside.first_token_time, record.first_token_time);
      EXPECT_DOUBLE_EQ(beside.finish_time, record.finish_time);
    }
  }
}

// What happens is recorded, and happens, in the order of a single thread: reports are equal byte by byte, and
// so are records and their order.
TEST(Fleet, ThreadsChangeNothing) {
  for (const RouterPolicy policy :
       {RouterPolicy::kRandom, RouterPolicy::kRoundRobin, RouterPolicy::kPowerOfTwo,
        RouterPolicy::kCacheAware, RouterPolicy::kTotalRequests, RouterPolicy::kTotalTokens}) {
    for (const std::size_t replicas : {2, 3, 9}) {
      const Workload workload = random_workload(100 + replicas, 1500);
      const Records alone = records(workload, replicas, policy, 1);
      for (const std::uint32_t threads : {2, 3, 4})
        EXPECT_EQ(records(workload, replicas, policy, threads), alone) << threads << " of " << replicas;
      EXPECT_EQ(sums(workload, replicas, policy, 3), sums(workload, replicas, policy, 1));
    }
  }
}

TEST(Fleet, ProcessesChangeNothing) {
  for (const RouterPolicy policy :
       {RouterPolicy::kRandom, RouterPolicy::kRoundRobin, RouterPolicy::kPowerOfTwo, RouterPolicy::kManual,
        RouterPolicy::kCacheAware, RouterPolicy::kTotalRequests, RouterPolicy::kTotalTokens}) {
    for (const std::size_t replicas : {2, 5}) {
      const Workload workload = random_workload(200 + replicas, 120);
      const Records all = records(workload, replicas, policy, 1), sum = sums(workload, replicas, policy, 1);
      EXPECT_EQ(all.back(), sum.front());
      for (const std::uint32_t processes : {2, 3, 4, 6}) {
        const bool tells_steps = processes != 3 && processes != 6;
        Turns turns(processes, {}, tells_steps);
        std::vector<Records> heard(processes);
        std::vector<std::thread> threads;
        for (std::uint32_t i = 0; i < processes; ++i)
          threads.emplace_back([&, i] {
            Turns::Seat seat(turns, i);
            heard[i] = records(workload, replicas, policy, processes == 2 ? 2 : 1, &seat);
          });
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(heard[0], tells_steps ? all : sum) << processes << " of " << replicas;
        EXPECT_GT(turns.rounds(), 2U);
        EXPECT_GT(turns.bytes(), turns.rounds() * processes);
        EXPECT_GE(turns.computed() * processes, std::accumulate(turns.cpu().begin(), turns.cpu().end(), 0.0));
      }
    }
  }
}

// Eight processes on two nodes have 1 KiB each in a first message; what one of them says beyond follows in
// another.
TEST(Fleet, MessagesBetweenNodes) {
  const Network network = {
      .per_node = 4, .node_latency = 1, .node_bandwidth = 1024, .latency = 100, .bandwidth = 512};
  std::vector<std::string> said(8);
  EXPECT_EQ(network.all_gather_seconds(said), 2 * 1 + 100 + 8 + 16);
  said[3].resize(1024 - sizeof(int));
  EXPECT_EQ(network.all_gather_seconds(said), 126);
  said[3].resize(3 * 1024 - sizeof(int));
  EXPECT_EQ(network.all_gather_seconds(said), 126 + 2 * 1 + 100 + 2 + 4);
  EXPECT_EQ(network.all_gather_seconds({"alone"}), 0);
}

// Prompts that begin alike find each other where the router remembers them, and not where it does not.
TEST(Fleet, CacheAwareFindsMorePrefixes) {
  Workload workload;
  std::mt19937_64 random(3);
  for (std::uint64_t i = 0; i < 160; ++i) {
    WorkloadRequest r;
    r.arrival_time = 0.004 * static_cast<double>(i);
    r.prompt.append({1000 * (random() % 8), 400});
    r.prompt.append({100000 + 1000 * i, 60});
    r.max_new_tokens = 4;
    workload.requests.push_back(std::move(r));
  }
  EXPECT_GT(serve(workload, 4, RouterPolicy::kCacheAware).report.cache_hit_rate(),
            serve(workload, 4, RouterPolicy::kRoundRobin).report.cache_hit_rate() + 0.1);
}

}  // namespace tpsim::scheduler::fleet_test
