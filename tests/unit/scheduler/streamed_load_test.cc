// A load that reads its workload as it goes sends what one does that knows all of it, and holds little.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/load.h"
#include "tests/unit/scheduler/reference_load.h"

namespace tpsim::scheduler {
namespace {

Workload random_workload(std::mt19937_64& random) {
  Workload workload;
  double time = 0;
  const std::size_t requests = 1 + random() % 60;
  const std::uint32_t sessions = 1 + static_cast<std::uint32_t>(random() % 10);
  std::vector<std::uint32_t> numbers(sessions + 1);  // by first appearance
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < requests; ++i) {
    WorkloadRequest request;
    if (random() % 3 != 0) time += static_cast<double>(random() % 5) / 4;
    request.arrival_time = time;
    request.max_new_tokens = 1 + static_cast<std::uint32_t>(random() % 9);
    if (random() % 4 != 0) {
      std::uint32_t& number = numbers[1 + random() % sessions];
      const bool first = number == 0;
      if (first) number = ++last;
      request.session = number;
      if (!first && random() % 2 == 0) request.think_time = static_cast<double>(random() % 4) / 2;
    }
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

LoadConfig random_config(std::mt19937_64& random) {
  LoadConfig config;
  if (random() % 3 == 0) config.session_mode = SessionMode::kTimestamps;
  if (random() % 2 == 0) config.max_concurrency = 1 + static_cast<std::uint32_t>(random() % 5);
  if (random() % 2 == 0) config.time_scale = 0.5;
  if (random() % 3 == 0) {
    config.request_rate = random() % 3 == 0 ? std::numeric_limits<double>::infinity() : 4;
    config.fixed_interval = random() % 2 == 0;
  }
  config.seed = random();
  return config;
}

TEST(StreamedLoad, SendsWhatOneDoesThatKnowsTheWholeWorkload) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 4000; ++round) {
    const Workload workload = random_workload(random);
    const LoadConfig config = random_config(random);
    const WorkloadView view(workload);
    LoadGenerator load(config, view);
    ReferenceLoad reference(config, workload);
    ASSERT_EQ(load.size(), reference.size());
    ASSERT_EQ(load.turns(), reference.turns());
    ASSERT_EQ(load.offered().rate, reference.offered().rate);
    ASSERT_EQ(load.offered().rate, offered_rate(config, view.outline()));
    ASSERT_EQ(load.offered().last_arrival, reference.offered().last_arrival);
    std::vector<std::uint64_t> in_flight;
    double now = 0;
    while (true) {
      ASSERT_EQ(load.next_time(), reference.next_time()) << "round " << round;
      const bool due = load.next_time() != RequestSource::kNever;
      if (!due && in_flight.empty()) break;
      if (due && (in_flight.empty() || random() % 2 == 0)) {
        const RequestSource::Sent sent = load.pop(), expected = reference.pop();
        ASSERT_EQ(sent.id, expected.id) << "round " << round;
        ASSERT_EQ(sent.time, expected.time) << "round " << round;
        ASSERT_EQ(sent.early, expected.early) << "round " << round;
        ASSERT_EQ(sent.request.get(), &workload.requests[sent.id]);
        now = std::max(now, sent.time);
        in_flight.push_back(sent.id);
        continue;
      }
      std::swap(in_flight[random() % in_flight.size()], in_flight.back());
      now += static_cast<double>(random() % 3) / 4;
      // A front end tells of answers that are still on their way.
      const double seen = now + static_cast<double>(random() % 3);
      load.on_finished(in_flight.back(), seen);
      reference.on_finished(in_flight.back(), seen);
      in_flight.pop_back();
    }
    ASSERT_TRUE(load.exhausted());
    ASSERT_EQ(load.offered().end, reference.offered().end) << "round " << round;
    ASSERT_EQ(load.offered().longest_output, reference.offered().longest_output) << "round " << round;
  }
}

// Conversations that begin one after another, of as many turns as `turns`, a second between them. `alive`:
// requests that anybody holds.
class EndlessConversations : public StreamedWorkload {
 public:
  EndlessConversations(std::uint32_t sessions, std::uint32_t turns, std::size_t& alive)
      : StreamedWorkload("", "", {}, [=, &alive] {
          return Reader{sessions, turns, &alive};
        }) {}

 private:
  struct Reader {
    std::shared_ptr<const WorkloadRequest> operator()() {
      // At second t, turn k of the session that began at t - k.
      while (true) {
        if (next_second >= sessions + turns) return nullptr;
        const std::uint32_t turn = next_turn;
        const std::uint32_t second = next_second;
        if (++next_turn == turns) {
          next_turn = 0;
          ++next_second;
        }
        if (turn > second || second - turn >= sessions) continue;
        ++*alive;
        auto* request = new WorkloadRequest;
        request->arrival_time = second;
        request->max_new_tokens = 1;
        request->session = second - turn + 1;
        return {request, [alive = alive](const WorkloadRequest* done) {
                  --*alive;
                  delete done;
                }};
      }
    }

    std::uint32_t sessions, turns;
    std::size_t* alive;
    std::uint32_t next_second = 0, next_turn = 0;
  };
};

TEST(StreamedLoad, HoldsWhatWaitsAndNothingElse) {
  std::size_t alive = 0;
  const EndlessConversations workload(5000, 6, alive);
  for (const double answer : {0.25, 5.0}) {
    LoadGenerator load({}, workload);
    std::size_t most = 0;
    std::deque<std::pair<double, std::uint64_t>> in_flight;  // by end
    while (load.next_time() != RequestSource::kNever || !in_flight.empty()) {
      if (!in_flight.empty() && in_flight.front().first <= load.next_time()) {
        load.on_finished(in_flight.front().second, in_flight.front().first);
        in_flight.pop_front();
      } else {
        const RequestSource::Sent sent = load.pop();
        in_flight.emplace_back(sent.time + answer, sent.id);
      }
      most = std::max(most, alive);
    }
    ASSERT_TRUE(load.exhausted());
    // Six turns of the conversations that go on at a time: six, or thirty where answers take so long.
    EXPECT_LE(most, answer < 1 ? 60u : 300u);
    EXPECT_EQ(alive, 0u);
  }
}

}  // namespace
}  // namespace tpsim::scheduler
