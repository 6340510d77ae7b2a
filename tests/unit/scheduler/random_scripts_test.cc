// Random scripts of submit, cancel and time: whatever is sent is completed, refused, cancelled or unfinished,
// once, and of every pool what is held, cached and free makes up the whole.
//
// 3,200 of them, 40,000 with TPSIM_LONG (`launch/test --long`), or as many in each of 8 tests as
// TPSIM_SCRIPTS says (125000: a million, half an hour of a core).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/fewer_operations.h"
#include "tests/unit/scheduler/checking_rank.h"
#include "tests/unit/scheduler/front_ends.h"
#include "tests/unit/scheduler/pricing_ranks.h"
#include "tests/unit/scheduler/random_config.h"
#include "tests/unit/scheduler/random_requests.h"
#include "tests/unit/scheduler/scripted_run.h"

namespace tpsim::scheduler {
namespace {

struct Script {
  Workload workload;
  std::vector<double> cancels;
};

Script random_script(std::mt19937_64& random, std::uint64_t capacity) {
  Script script;
  const double pace = std::vector{0.0, 0.002, 0.02, 0.2}[random() % 4];
  const double patience = std::vector{0.0, 0.01, 0.1, 1.0}[random() % 4];
  const std::uint64_t share = random() % 10;
  double time = 0;
  kvcache::TokenId fresh = 1;
  const std::size_t count = 1 + random() % 24;
  for (std::size_t i = 0; i < count; ++i) {
    WorkloadRequest& r = script.workload.requests.emplace_back();
    time += pace * static_cast<double>(random() % 100) / 50;
    r.arrival_time = time;
    draw_prompt(random, std::span(script.workload.requests).first(i), capacity, fresh, r);
    // Long answers fill small pools.
    r.max_new_tokens = static_cast<std::uint32_t>(1 + random() % (random() % 16 == 0 ? 300 : 24));
    draw_answer(random, fresh, r);
    r.priority = static_cast<std::int32_t>(random() % 3);
    const double after = patience * static_cast<double>(random() % 1000) / 500;
    script.cancels.push_back(random() % 10 < share ? time + after : ScriptedRun::kNever);
  }
  return script;
}

// How many ended in each state.
using Counts = std::vector<std::uint64_t>;

void check_pools(Replica& replica) {
  const DataParallelGroup::Totals idle = replica.schedulers().totals();
  EXPECT_EQ(idle.running, 0u);
  EXPECT_EQ(idle.waiting, 0u);
  for (const PoolUse& pool : idle.pools) EXPECT_EQ(pool.held, 0u);
  replica.flush_cache();
  for (const PoolUse& pool : replica.schedulers().totals().pools) EXPECT_EQ(pool.free, pool.capacity());
}

void run_script(std::uint64_t seed, Counts& counts) {
  std::mt19937_64 random(seed);
  const SchedulerConfig config = random_deployment(random);
  const Script script = random_script(random, config.max_total_num_tokens);
  FrontEndConfig front_end;
  if (random() % 2 == 0) front_end = kTokenIdFrontEnd;
  CheckingRank rank(config);
  PricingRanks ranks(config);
  const bool followed = config.data_parallel.size == 1 && random() % 4 == 0;
  ScriptedRun run(config, front_end, followed ? static_cast<Executor&>(rank) : ranks, script.workload,
                  script.cancels);
  // Some are looked at in the middle.
  std::uint64_t events = random() % 4 == 0 ? random() % 200 : 1'000'000;
  bool ended = false;
  while (events > 0 && !(ended = !run.step())) --events;
  ASSERT_TRUE(ended || events == 0);

  run.replica().schedulers().check_invariants();
  std::set<std::uint64_t> unfinished;
  for (const Req* req : run.replica().schedulers().unfinished())
    EXPECT_TRUE(unfinished.insert(req->id).second) << "request " << req->id;
  std::size_t left = 0;
  for (std::size_t i = 0; i < run.sent(); ++i) {
    const auto& outcome = run.outcomes()[i];
    // Who has not left is with the scheduler or, in the middle, on the way to it.
    if (outcome) {
      EXPECT_FALSE(unfinished.contains(i)) << "request " << i << " has left and is here";
    } else if (ended) {
      EXPECT_TRUE(unfinished.contains(i)) << "request " << i << " is lost";
    }
    left += outcome ? 1 : 0;
    const RequestState state = outcome ? outcome->state : RequestState::kUnfinished;
    ++counts[static_cast<std::size_t>(state)];
    if (state == RequestState::kCancelled) {
      EXPECT_NE(script.cancels[i], ScriptedRun::kNever) << "request " << i;
      EXPECT_GE(outcome->time, script.cancels[i]) << "request " << i;
    }
  }
  // Without windows nobody waits for ever.
  if (ended && config.sliding_window_size == 0) {
    EXPECT_EQ(left, script.workload.requests.size());
  }
  if (left == script.workload.requests.size() && ended) check_pools(run.replica());
}

class RandomScripts : public ::testing::TestWithParam<int> {};

TEST_P(RandomScripts, LoseNoRequestAndNoPage) {
  const char* const asked = std::getenv("TPSIM_SCRIPTS");
  const int scripts = asked != nullptr                       ? std::stoi(asked)
                      : std::getenv("TPSIM_LONG") != nullptr ? 5'000
                                                             : 400;
  Counts counts(4, 0);
  for (int i = 0; i < scripts && !HasFailure(); ++i) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1'000'000 + static_cast<std::uint64_t>(i);
    SCOPED_TRACE(seed);
    run_script(seed, counts);
  }
  for (const std::uint64_t count : counts) EXPECT_GT(count, 10u);  // there are some of each
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomScripts, ::testing::Range(0, kFewerOperations ? 4 : 8));

}  // namespace
}  // namespace tpsim::scheduler
