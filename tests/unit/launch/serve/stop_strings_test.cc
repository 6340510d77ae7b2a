#include <gtest/gtest.h>

#include "launch/serve/call_choice.h"

namespace tpsim::launch {
namespace {

TEST(StopStrings, FindsOneThatComesInPieces) {
  StopStrings stops({"\n\nUser:"});
  EXPECT_FALSE(stops.push("an answer\n"));
  EXPECT_TRUE(stops.may_begin());
  EXPECT_FALSE(stops.push("\nUs"));
  EXPECT_TRUE(stops.may_begin());
  const auto match = stops.push("er: what");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->stop, "\n\nUser:");
  EXPECT_EQ(match->bytes_from_start, std::string("\n\nUser: what").size());
  EXPECT_EQ(stops.last(match->bytes_from_start), "\n\nUser: what");
}

TEST(StopStrings, TakesTheFirstOfSeveral) {
  StopStrings stops({"three", "two"});
  const auto match = stops.push("one two three");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->stop, "two");
}

TEST(StopStrings, KnowsWhenNothingHasBegun) {
  StopStrings stops({"###"});
  EXPECT_FALSE(stops.push("a # b"));
  EXPECT_FALSE(stops.may_begin());
  EXPECT_FALSE(stops.push("##"));
  EXPECT_TRUE(stops.may_begin());
  EXPECT_FALSE(stops.push(" and on"));
  EXPECT_FALSE(stops.may_begin());
}

TEST(StopStrings, OfNoneFindsNothing) {
  StopStrings stops({});
  EXPECT_FALSE(stops.push("anything"));
  EXPECT_FALSE(stops.may_begin());
}

}  // namespace
}  // namespace tpsim::launch
