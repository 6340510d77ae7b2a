// The queue in front of the scheduler: alone, and what it makes of a burst.
#include "scheduler/front_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/front_ends.h"

namespace tpsim::scheduler {
namespace {

constexpr FrontEndConfig kMeasured = {
    .pass_seconds = 1.5e-3, .request_seconds = 1.4e-3, .token_seconds = 1.2e-6, .response_seconds = 1e-3};

TEST(FrontEnd, WithoutTimesRequestsAreWhereTheyAreSent) {
  FrontEnd front_end({});
  EXPECT_EQ(front_end.next_time(), RequestSource::kNever);
  front_end.send({.id = 3, .time = 0.1, .early = false}, 1000);
  front_end.send({.id = 1, .time = 0.1, .early = true}, 1);
  EXPECT_EQ(front_end.next_time(), 0.1);
  EXPECT_EQ(front_end.pop().id, 3u);
  EXPECT_EQ(front_end.pop().id, 1u);
  EXPECT_EQ(front_end.next_time(), RequestSource::kNever);
  EXPECT_EQ(front_end.seen(0.5), 0.5);
}

TEST(FrontEnd, ImagesKeepItBusyWhereTheyAreToldOf) {
  FrontEndConfig config = kMeasured;
  for (const bool prepares : {false, true}) {
    config.prepares_images = prepares;
    FrontEnd front_end(config);
    front_end.send({.id = 0, .time = 0, .early = false}, 0, 0.25);
    front_end.send({.id = 1, .time = 0, .early = false}, 0);
    EXPECT_NEAR(front_end.next_time(), 2.9e-3 + (prepares ? 0.25 : 0), 1e-12);
    front_end.pop();
    EXPECT_NEAR(front_end.next_time(), 4.3e-3 + (prepares ? 0.25 : 0), 1e-12) << "one process for both";
  }
}

// It prepares the images of all that were there when it looked last, and sees no answer meanwhile.
TEST(FrontEnd, AnswersWaitForImages) {
  FrontEndConfig config = kMeasured;
  config.prepares_images = true;
  config.request_seconds = config.token_seconds = config.response_seconds = 0;
  FrontEnd front_end(config);
  front_end.send({.id = 0, .time = 0, .early = false}, 9, 0.1);
  front_end.send({.id = 1, .time = 0.01, .early = false}, 9, 0.1);
  front_end.send({.id = 2, .time = 0.02, .early = false}, 9, 0.1);
  EXPECT_DOUBLE_EQ(front_end.stream(0.05, 0, 1), 0.1) << "behind the first, which was alone";
  EXPECT_DOUBLE_EQ(front_end.stream(0.15, 1, 0), 0.3) << "behind the two that came meanwhile";
  EXPECT_DOUBLE_EQ(front_end.stream(0.35, 0, 1), 0.35);
  front_end.send({.id = 3, .time = 0.4, .early = false}, 9);
  EXPECT_DOUBLE_EQ(front_end.seen(0.4), 0.4) << "text takes no time to speak of";
}

TEST(FrontEnd, WorkersShareTheRequests) {
  FrontEndConfig config = kMeasured;
  config.workers = 2;
  FrontEnd front_end(config);
  const double whole = 1.4e-3 + 1.2e-6 * 5000;
  front_end.send({.id = 0, .time = 0, .early = false}, 5000);
  for (std::uint64_t id = 1; id < 3; ++id) front_end.send({.id = id, .time = 0, .early = false}, 0);
  for (const std::uint64_t id : {1, 2}) {
    EXPECT_NEAR(front_end.next_time(), 1.5e-3 + 1.4e-3 * double(id), 1e-12);
    EXPECT_EQ(front_end.pop().id, id) << "the second worker's, who is done before the first";
  }
  EXPECT_NEAR(front_end.next_time(), 1.5e-3 + whole, 1e-12);
  EXPECT_EQ(front_end.pop().id, 0u);
}

// A client that needs nothing sees what the server's socket does; one that needs what was fitted, all of it.
TEST(FrontEnd, TheClientsShareIsPartOfIt) {
  for (const FrontEndConfig& fitted : {kTokenIdFrontEnd, kKitFrontEnd}) {
    const FrontEndConfig server = with_client(fitted, kClient, 0);
    EXPECT_NEAR(server.pass_seconds + kClient.asking, fitted.pass_seconds, 1e-12);
    EXPECT_NEAR(server.response_seconds + kClient.reading, fitted.response_seconds, 1e-12);
    EXPECT_GT(server.pass_seconds, 0);
    EXPECT_GT(server.response_seconds, 0);
    const FrontEndConfig whole = with_client(fitted, kClient, kClient.seconds());
    EXPECT_DOUBLE_EQ(whole.pass_seconds, fitted.pass_seconds);
    EXPECT_DOUBLE_EQ(whole.response_seconds, fitted.response_seconds);
    EXPECT_EQ(server.request_seconds, fitted.request_seconds);
    EXPECT_EQ(server.stream_seconds, fitted.stream_seconds);
  }
}

// In order, one after another, none before its own time in it, and busy as long as there is something to do.
TEST(FrontEnd, RandomRequestsPassOneByOne) {
  std::mt19937 random(7);
  FrontEnd front_end(kMeasured);
  double sent = 0, done = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    if (random() % 3 != 0) sent += double(random() % 5000) * 1e-6;
    const std::uint64_t tokens = 1 + random() % 4000;
    front_end.send({.id = i, .time = sent, .early = false}, tokens);
    const double own = 1.4e-3 + 1.2e-6 * double(tokens);
    done = std::max(done, sent) + own;
    EXPECT_NEAR(front_end.next_time(), done + 1.5e-3, 1e-9);
    const RequestSource::Sent out = front_end.pop();
    EXPECT_EQ(out.id, i);
    EXPECT_EQ(out.time, sent);
  }
}

// A client that draws a prompt before it sends it sends those that are due together one after another, and
// the clock of each starts then.
TEST(FrontEnd, AClientMayDrawItsPromptsOneByOne) {
  FrontEndConfig config = kMeasured;
  config.client_seconds = 1e-3;
  config.client_token_seconds = 1e-6;
  FrontEnd front_end(config);
  for (std::size_t i = 0; i < 3; ++i) front_end.send({.id = i, .time = 0.5, .early = false}, 1000);
  front_end.send({.id = 3, .time = 0.6, .early = false}, 0);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(front_end.pop().time, 0.502 + 0.002 * double(i), 1e-12);
  EXPECT_NEAR(front_end.next_time(), 0.601 + 2.9e-3, 1e-12);
  EXPECT_NEAR(front_end.pop().time, 0.601, 1e-12);
}

// One event loop: those that are there together take turns and come together, and the next ones behind them.
TEST(FrontEnd, RequestsThatAreThereTogetherTakeTurns) {
  FrontEndConfig config = kMeasured;
  config.dispatch_seconds = 1e-4;
  FrontEnd front_end(config);
  const double own = 1.4e-3, pass = 1.5e-3;
  for (const double sent : {0.0, 0.5e-3, 1e-3, 2e-3}) {
    const auto id = static_cast<std::uint64_t>(sent * 1e4);
    front_end.send({.id = id, .time = sent, .early = false}, 0);
  }
  EXPECT_NEAR(front_end.next_time(), own + pass, 1e-12);
  EXPECT_EQ(front_end.pop().id, 0u);
  // Two came during its turn, the last one during theirs.
  EXPECT_NEAR(front_end.next_time(), 3 * own + pass - 1e-4, 1e-12);
  EXPECT_EQ(front_end.pop().id, 5u);
  EXPECT_NEAR(front_end.next_time(), 3 * own + pass, 1e-12);
  EXPECT_EQ(front_end.withdraw(20)->id, 20u);
  EXPECT_EQ(front_end.pop().id, 10u);
  EXPECT_EQ(front_end.next_time(), RequestSource::kNever);
}

// A request beyond the open connections leaves when its client has made all that were due with it; the
// connection is another one's when it has ended.
TEST(FrontEnd, ConnectionsAreOpenedBehindABurst) {
  FrontEndConfig config = kMeasured;
  config.dispatch_seconds = 1e-4;
  config.connect_seconds = 1e-4;
  config.client_seconds = 1e-3;
  config.connections = 1;
  FrontEnd front_end(config);
  const double own = 1.4e-3, pass = 1.5e-3;
  const auto burst = [&front_end](double due) {
    for (std::uint64_t id = 0; id < 3; ++id) front_end.send({.id = id, .time = due, .early = false}, 0);
  };
  burst(0);
  EXPECT_NEAR(front_end.next_time(), 1e-3 + own + pass, 1e-12);
  EXPECT_EQ(front_end.pop().id, 0u);
  EXPECT_NEAR(front_end.next_time(), 3.1e-3 + own + pass, 1e-12);  // the third was made after 3 ms
  EXPECT_EQ(front_end.pop().id, 1u);
  EXPECT_NEAR(front_end.next_time(), 3.1e-3 + 2 * own + pass, 1e-12);
  EXPECT_EQ(front_end.pop().id, 2u);
  for (int i = 0; i < 3; ++i) front_end.leave();
  burst(1);  // three are open
  front_end.pop();
  EXPECT_NEAR(front_end.next_time(), 1 + 1e-3 + 2 * own + pass, 1e-12);
}

// A server whose tokens come faster than they can be handed out: clients see them at the pace of the way
// back.
TEST(FrontEnd, AnswersQueueWhereStepsAreTooShort) {
  FrontEnd front_end({.stream_seconds = 1e-4, .response_seconds = 1e-3});
  EXPECT_DOUBLE_EQ(front_end.stream(0.1, 10, 0), 0.102);
  EXPECT_DOUBLE_EQ(front_end.stream(0.2, 0, 10), 0.202);
  double seen = 0;
  for (int step = 1; step <= 100; ++step) seen = front_end.stream(0.3 + 0.004 * step, 0, 50);
  EXPECT_NEAR(seen, 0.304 + 100 * 50 * 1e-4 + 1e-3, 1e-12);
  EXPECT_DOUBLE_EQ(front_end.seen(0.7), seen);  // behind what was streamed
  EXPECT_DOUBLE_EQ(front_end.seen(2), 2.001);
}

// A server that copies an answer for each of its tokens: what was sent together goes back ever later.
TEST(FrontEnd, LongAnswersGoBackSlowerWhereTheyAreCopied) {
  FrontEnd front_end({.stream_seconds = 1e-4, .copy_seconds = 1e-7, .stream_interval = 2});
  EXPECT_DOUBLE_EQ(front_end.stream(0.1, 10, 0), 0.101);
  EXPECT_DOUBLE_EQ(front_end.stream(0.2, 0, 10, 10), 0.2005 + 5e-7);
  EXPECT_DOUBLE_EQ(front_end.stream(0.3, 0, 10, 20000), 0.3005 + 1e-3);
}

// --stream-interval: first tokens go at once, later ones several together.
TEST(FrontEnd, TokensThatGoTogetherAreOneMessage) {
  FrontEnd front_end({.stream_seconds = 1e-4, .stream_interval = 10});
  EXPECT_DOUBLE_EQ(front_end.stream(0.1, 10, 0), 0.101);
  EXPECT_DOUBLE_EQ(front_end.stream(0.2, 0, 50), 0.2005);
}

// Of requests sent together the first prefill holds one, as on real servers; a client that waits for answers
// sees each of the two ways.
TEST(FrontEnd, ABurstReachesTheSchedulerOneByOne) {
  SchedulerConfig config;
  config.max_total_num_tokens = 100000;
  config.max_running_requests = 100;
  config.context_length = 50000;
  config.check_invariants = true;
  config.disable_overlap_schedule = true;
  Workload workload;
  for (std::uint32_t i = 0; i < 8; ++i) {
    WorkloadRequest request;
    request.prompt.append({1000 + i * 100, 100});
    request.max_new_tokens = 2;
    workload.requests.push_back(request);
  }
  LoadConfig load;
  const auto run = [&](FakeExecutor& executor) {
    RecordingObserver observer;
    return run_workload(config, load, WorkloadView(workload), executor, observer);
  };
  FakeExecutor together;
  const double ttft = run(together).mean_ttft_ms();
  EXPECT_EQ(together.batches.at(0).extend_lens_size(), 8);
  load.front_end = kMeasured;
  FakeExecutor apart;
  EXPECT_GT(run(apart).mean_ttft_ms(), ttft);
  EXPECT_EQ(apart.batches.at(0).extend_lens_size(), 1);
  EXPECT_EQ(apart.batches.at(1).extend_lens_size(), 7);

  // One at a time: pass, queue and response for each, whatever the others do.
  load.max_concurrency = 1;
  FakeExecutor alone;
  RecordingObserver observer;
  const proto::RunReport report = run_workload(config, load, WorkloadView(workload), alone, observer);
  const double in = 1.5 + 1.4 + 0.12;
  EXPECT_NEAR(report.mean_ttft_ms(), in + 11 + 1, 1e-9);
  EXPECT_NEAR(report.mean_tpot_ms(), 10, 1e-9);
  EXPECT_NEAR(report.duration(), 8 * (in + 11 + 10 + 1) * 1e-3, 1e-12);
}

}  // namespace
}  // namespace tpsim::scheduler
