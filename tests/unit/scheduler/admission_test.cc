// What sglang_router 0.3.2 lets through: its answers to six requests, one every 20 ms, before a server that
// takes a second for each.
#include "scheduler/router/admission.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tpsim::scheduler::admission_test {

// When each was let through; nothing: it was not.
std::vector<std::optional<double>> let_through(const AdmissionConfig& config, double service) {
  Admission admission(config);
  std::vector<std::optional<double>> passed(6);
  std::map<double, std::uint64_t> ends, given_up;
  const auto pass = [&](std::uint64_t id, double now) {
    passed[id] = now;
    ends[now + service] = id;
  };
  const auto run_until = [&](double now) {
    while (!ends.empty() || !given_up.empty()) {
      const double end = ends.empty() ? now : ends.begin()->first;
      const double lost = given_up.empty() ? now : given_up.begin()->first;
      if (end >= now && lost >= now) return;
      if (lost <= end) {
        admission.give_up(given_up.begin()->second);
        given_up.erase(given_up.begin());
        continue;
      }
      ends.erase(ends.begin());
      if (const auto next = admission.give_back(end)) {
        std::erase_if(given_up, [&](const auto& one) { return one.second == *next; });
        pass(*next, end);
      }
    }
  };
  for (std::uint64_t id = 0; id < passed.size(); ++id) {
    const double now = 0.02 * static_cast<double>(id);
    run_until(now);
    if (admission.take(now)) {
      pass(id, now);
    } else if (const auto wait = admission.wait(id, now)) {
      EXPECT_FALSE(wait->passes);
      given_up[wait->until + 1e-9 * static_cast<double>(id)] = id;
    }
  }
  run_until(100);
  return passed;
}

TEST(Admission, WaitsNoLongerThanATokenTakes) {
  // The real router gave the others up after 0.50 s, when its bucket had made a token.
  const auto passed = let_through({.capacity = 2, .refill = 2}, 1);
  for (std::size_t id = 0; id < 6; ++id) EXPECT_EQ(passed[id].has_value(), id < 2) << id;
}

TEST(Admission, TokensThatAreGivenBackGoToTheFirst) {
  const auto passed = let_through({.capacity = 2, .refill = 2}, 0.3);
  ASSERT_TRUE(passed[2] && passed[3]);
  EXPECT_NEAR(*passed[2], 0.3, 1e-9);
  EXPECT_NEAR(*passed[3], 0.32, 1e-9);
  EXPECT_FALSE(passed[4] && *passed[4] < 0.59);
}

TEST(Admission, ManyTokensASecondLetEverythingThrough) {
  for (const auto& passed : let_through({.capacity = 2, .refill = 1000}, 1)) EXPECT_TRUE(passed);
}

TEST(Admission, WithoutAQueueOthersAreRefusedAtOnce) {
  const auto passed = let_through({.capacity = 2, .refill = 2, .queue_size = 0}, 0.09);
  EXPECT_TRUE(passed[0] && passed[1] && passed[5]);
  EXPECT_FALSE(passed[2] || passed[3] || passed[4]);
}

TEST(Admission, NobodyWaitsLongerThanTheQueueAllows) {
  Admission admission({.capacity = 1, .refill = 0.001, .queue_size = 1, .queue_timeout = 5});
  ASSERT_TRUE(admission.take(0));
  ASSERT_FALSE(admission.take(1));
  EXPECT_EQ(admission.wait(7, 1)->until, 6);
}

// Its end was told of before it came.
TEST(Admission, ATokenThatComesIsWaitedFor) {
  Admission admission({.capacity = 1, .refill = 1});
  ASSERT_TRUE(admission.take(0));
  EXPECT_FALSE(admission.give_back(0.5));
  ASSERT_FALSE(admission.take(0.1));
  const auto wait = admission.wait(7, 0.1);
  EXPECT_TRUE(wait && wait->passes);
  EXPECT_EQ(wait->until, 0.5);
  EXPECT_FALSE(admission.take(0.6));
}

}  // namespace tpsim::scheduler::admission_test
