// What replicas told, over the wire: the same events in the same turns.
#include "scheduler/told.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/base/archive.h"

namespace tpsim::scheduler::told_test {

class Events final : public RunListener {
 public:
  void on_step(const StepRecord& s, bool computed, double now) override {
    steps += fmt::format("{} {} {} {} {} {}:", s.replica, s.sequence_number, s.start_time, s.pools[0].held,
                         computed, now);
    for (const StageTimes& stage : s.stages) steps += fmt::format("{} ", stage.sent);
  }
  void on_finished(const RequestRecord& r, const char* because) override {
    finished += fmt::format("{} {} {} {}:", r.id, r.replica, r.prefill_replica.value_or(77), r.finish_time);
    for (const Interruption& each : r.interruptions)
      finished += fmt::format("{} {},", each.retracted, each.readmitted);
    finished += because == nullptr ? "-;" : because + std::string(";");
  }
  std::string steps, finished;
};

// `kinds`: of events, from 0.
Told random_told(std::mt19937_64& random, std::uint64_t kinds) {
  const auto real = [&random] { return static_cast<double>(random() % 1000) / 64; };
  Told told;
  for (std::uint64_t turn = random() % 20; turn > 0; --turn) {
    told.begin(real(), random() % 2 == 0, random() % 100);
    for (std::uint64_t event = random() % 6; event > 0; --event) {
      const std::uint64_t kind = random() % kinds;
      if (kind == 0) {
        const std::vector<Interruption> interruptions(random() % 3, {real(), real()});
        RequestRecord record;
        record.id = random();
        record.replica = static_cast<std::uint32_t>(random());
        record.finish_time = real();
        if (random() % 2 == 0) record.prefill_replica = static_cast<std::uint32_t>(random() % 9);
        record.interruptions = interruptions;
        told.on_finished(record, random() % 2 == 0 ? "it is too long" : nullptr);
      } else {
        const std::vector<StageTimes> stages(random() % 3, {.start = real(), .end = real(), .sent = real()});
        StepRecord record;
        record.sequence_number = random();
        record.start_time = real();
        record.pools[0].held = random();
        record.stages = stages;
        told.on_step(record, random() % 2 == 0, real());
      }
    }
  }
  return told;
}

struct Line {
  Told::Turn turn;
  Events events;
};
std::vector<Line> lines_of(const Told& told) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < told.turns().size(); ++i) {
    lines.push_back({told.turns()[i], {}});
    told.tell(i, lines.back().events);
  }
  return lines;
}

TEST(Told, IsTheSameElsewhere) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    const std::vector<Told> sent = {random_told(random, 2), random_told(random, 1), random_told(random, 2)};
    for (const bool writes : {true, false}) {
      StateWriter out;
      for (const Told& told : sent) told.write(writes, out);
      for (const bool reads : {true, false}) {
        StateReader in(out.bytes());
        for (const Told& told : sent) {
          Told heard;
          heard.read(reads, in);
          const std::vector<Line> there = lines_of(heard);
          auto next = there.begin();
          for (const Line& line : lines_of(told)) {
            if (line.events.finished.empty() && !(writes && reads && !line.events.steps.empty())) continue;
            ASSERT_NE(next, there.end());
            EXPECT_FALSE(next->turn < line.turn || line.turn < next->turn);
            EXPECT_EQ(next->events.finished, line.events.finished);
            EXPECT_EQ(next->events.steps, writes && reads ? line.events.steps : "");
            ++next;
          }
          EXPECT_EQ(next, there.end());
        }
        EXPECT_TRUE(in.at_end());
        Told more;
        EXPECT_THROW(more.read(reads, in), std::length_error);
      }
    }
  }
}

}  // namespace tpsim::scheduler::told_test
