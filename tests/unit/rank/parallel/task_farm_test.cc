#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "rank/parallel/farm.h"

namespace tpsim::rank {
namespace {

std::string square(std::uint32_t task) { return std::to_string(task * task); }

// Without mpirun a farm is this process alone.
TEST(TaskFarm, CarriesOutEveryTaskOnceOnAnyNumberOfThreads) {
  MpiSession session;
  for (const std::uint32_t threads : {1u, 2u, 7u}) {
    TaskFarm farm(session);
    std::vector<int> seen(100, 0);
    const bool all =
        farm.run({100, threads, [](std::uint32_t task, const std::atomic<bool>&) { return square(task); },
                  [&](std::uint32_t task, const std::string& result) {
                    ++seen.at(task);
                    EXPECT_EQ(result, square(task));
                  },
                  [] { return true; }});
    EXPECT_TRUE(all);
    EXPECT_EQ(seen, std::vector<int>(100, 1));
  }
}

TEST(TaskFarm, StopsWhatGoesOnAndKeepsWhatIsDone) {
  MpiSession session;
  TaskFarm farm(session);
  std::uint32_t results = 0;
  const auto begin = std::chrono::steady_clock::now();
  const bool all = farm.run({10, 2,
                             [](std::uint32_t task, const std::atomic<bool>& stop) {
                               while (task >= 3 && !stop)
                                 std::this_thread::sleep_for(std::chrono::milliseconds(1));
                               return square(task);
                             },
                             [&](std::uint32_t task, const std::string&) {
                               EXPECT_LT(task, 3u);
                               ++results;
                             },
                             [&] { return results < 3; }});
  EXPECT_FALSE(all);
  EXPECT_EQ(results, 3u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(TaskFarm, ThrowsWhatATaskThrows) {
  MpiSession session;
  TaskFarm farm(session);
  EXPECT_THROW(farm.run({10, 3,
                         [](std::uint32_t task, const std::atomic<bool>&) -> std::string {
                           if (task == 5) throw std::logic_error("five");
                           return "";
                         },
                         [](std::uint32_t, const std::string&) {}, [] { return true; }}),
               std::logic_error);
}

}  // namespace
}  // namespace tpsim::rank
