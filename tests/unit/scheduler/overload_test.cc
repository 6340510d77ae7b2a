// Which loads are said to be more than can be served. The server of these tests prefills 10 requests a second
// and holds as many as there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "scheduler/load.h"
#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// All at time 0, with nothing in common.
Workload requests(int count, std::uint32_t output = 1) {
  Workload workload;
  for (int i = 0; i < count; ++i) {
    WorkloadRequest request;
    request.prompt.append({static_cast<kvcache::TokenId>(i) * 1000, 1000});
    request.max_new_tokens = output;
    workload.requests.push_back(request);
  }
  return workload;
}

proto::RunReport serve(const Workload& workload, const LoadConfig& load, std::uint32_t max_running = 1000) {
  SchedulerConfig config;
  config.max_total_num_tokens = 4'000'000;
  config.max_running_requests = max_running;
  config.max_prefill_tokens = 1000;
  config.context_length = 50000;
  config.disable_overlap_schedule = true;
  FakeExecutor executor;
  executor.base = 0.001;
  executor.per_prefill_token = 1e-4;
  RecordingObserver observer;
  return run_workload(config, load, WorkloadView(workload), executor, observer);
}

LoadConfig at(double rate) {
  LoadConfig load;
  load.request_rate = rate;
  return load;
}

TEST(Overload, IsSaidWhereRequestsComeFasterThanTheyAreServed) {
  for (const double rate : {1.0, 5.0, 8.0, 9.0})
    EXPECT_FALSE(serve(requests(1000), at(rate)).has_overload()) << rate;
  for (const double rate : {12.0, 15.0, 40.0, 500.0}) {
    const proto::RunReport report = serve(requests(1000), at(rate));
    ASSERT_TRUE(report.has_overload()) << rate;
    EXPECT_DOUBLE_EQ(report.overload().offered_rate(), rate);
    EXPECT_DOUBLE_EQ(report.overload().served_rate(), report.request_throughput());
    EXPECT_NEAR(report.overload().served_rate(), 9.9, 0.1);
  }
  EXPECT_EQ(serve(requests(1000), at(40)).overload().message(),
            "offered 40.00 requests/s, served 9.90: the queue grows without end");
}

TEST(Overload, IsNotSaidOfLoadsThatDoNotComeByThemselves) {
  EXPECT_FALSE(serve(requests(1000), at(kInfinity)).has_overload());
  EXPECT_FALSE(serve(requests(1000), {}).has_overload());  // all of the workload's times are 0
  EXPECT_FALSE(serve({}, at(40)).has_overload());
  EXPECT_FALSE(serve(requests(1), at(40)).has_overload());
  LoadConfig closed = at(40);
  closed.max_concurrency = 8;
  EXPECT_FALSE(serve(requests(1000), closed).has_overload());
}

TEST(Overload, IsNotSaidOfABurstAtTheEnd) {
  Workload workload = requests(1000);
  for (int i = 0; i < 1000; ++i) {
    const int before = std::min(i, 800);
    workload.requests[static_cast<std::size_t>(i)].arrival_time = before * 0.2 + (i - before) * 0.005;
  }
  EXPECT_FALSE(serve(workload, {}).has_overload());
}

// Long outputs: all that came in the first seconds are still there when the last comes, and none too many.
TEST(Overload, IsNotSaidOfAShortLoadOfLongRequests) {
  for (const double rate : {1.0, 4.0, 8.0})
    EXPECT_FALSE(serve(requests(60, 20000), at(rate)).has_overload()) << rate;
}

// None waits for its prefill, but a decode step takes longer the more there are, as without a batch.
TEST(Overload, IsSaidWhereTheBatchGrowsInsteadOfTheQueue) {
  class OneByOne : public FakeExecutor {
   public:
    StepOutcome forward(const proto::ForwardBatch& batch) override {
      running_ += batch.decode_join_size() - batch.decode_leave_size();
      return {0.001 + (batch.forward_mode() == proto::DECODE ? 0.01 * running_ : 0), 0};
    }

   private:
    int running_ = 0;
  };
  SchedulerConfig config;
  config.max_total_num_tokens = 4'000'000;
  config.max_running_requests = 1000;
  config.context_length = 50000;
  config.disable_overlap_schedule = true;
  const auto overloaded = [&config](double rate) {
    OneByOne executor;  // a request of 20 decodes takes 0.2 s of it
    RecordingObserver observer;
    return run_workload(config, at(rate), WorkloadInMemory(requests(300, 21)), executor, observer)
        .has_overload();
  };
  EXPECT_FALSE(overloaded(2));
  EXPECT_FALSE(overloaded(4));
  EXPECT_TRUE(overloaded(15));
  EXPECT_TRUE(overloaded(50));
}

TEST(Overload, IsNotSaidOfARunThatStoppedEarly) {
  SchedulerConfig config;
  config.max_total_num_tokens = 4'000'000;
  config.max_running_requests = 1000;
  config.context_length = 50000;
  FakeExecutor executor;
  executor.base = 1;
  RecordingObserver observer;
  observer.progress = [](const Progress& progress) { return progress.finished < 100; };
  const proto::RunReport report =
      run_workload(config, at(100), WorkloadInMemory(requests(4000, 400)), executor, observer);
  EXPECT_TRUE(report.stopped_early());
  EXPECT_FALSE(report.has_overload());
}

}  // namespace
}  // namespace tpsim::scheduler
