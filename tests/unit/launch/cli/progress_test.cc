#include <gtest/gtest.h>

#include "launch/cli/terminal.h"

namespace tpsim::launch {
namespace {

TEST(ProgressLine, ShowsShareTimeAndRate) {
  const scheduler::Progress progress{.time = 1800.25, .finished = 50, .total = 200, .steps = 9};
  EXPECT_EQ(progress_line("fa3", progress, 4.5, 120),
            "fa3  [######------------------]  25%  50/200 requests  1800.2 s simulated  400 s/s");
}

TEST(ProgressLine, DropsPartsOnANarrowTerminal) {
  const scheduler::Progress progress{.time = 1, .finished = 200, .total = 200, .steps = 9};
  EXPECT_EQ(progress_line("fa3", progress, 1, 40), "fa3  [########################] 100%");
  EXPECT_EQ(progress_line("fa3", progress, 1, 2), "");
}

TEST(ProgressLine, SurvivesAnEmptyWorkload) {
  EXPECT_EQ(progress_line("fa3", {}, 0, 50), "fa3  [########################] 100%  0/0 requests");
}

}  // namespace
}  // namespace tpsim::launch
