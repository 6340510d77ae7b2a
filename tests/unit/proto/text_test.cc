#include "proto/base/text.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/base/error.h"

namespace tpsim::text_test {
namespace {

constexpr std::string_view kNames[] = {"page-size", "tp-size", "trace", "trace-format"};

TEST(Nearest, FindsSlipsOfTheKeyboard) {
  EXPECT_EQ(nearest("page-sise", kNames), "page-size");
  EXPECT_EQ(nearest("pgae-size", kNames), "page-size");
  EXPECT_EQ(nearest("trase", kNames), "trace");
  EXPECT_EQ(nearest("trac-format", kNames), "trace-format");
}

TEST(Nearest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest("quantum-entanglement", kNames), "");
  EXPECT_EQ(nearest("x", std::span<const std::string_view>()), "");
}

TEST(JoinOr, Reads) {
  EXPECT_EQ(join_or({}), "");
  EXPECT_EQ(join_or(std::span(kNames, 1)), "page-size");
  EXPECT_EQ(join_or(std::span(kNames, 3)), "page-size, tp-size or trace");
}

TEST(ParseCount, TakesWholeNumbersInRangeOnly) {
  EXPECT_EQ(parse_count("--n", "7", 1, 10), 7u);
  for (const char* bad :
       {"", "0", "11", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "99999999999999999999999"})
    EXPECT_THROW(parse_count("--n", bad, 1, 10), UserError) << bad;
}

TEST(ParseReal, TakesNumbersInRangeOnly) {
  EXPECT_DOUBLE_EQ(parse_real("--x", "0.25", 0, false, 1, true), 0.25);
  EXPECT_DOUBLE_EQ(parse_real("--x", "1", 0, false, 1, true), 1);
  EXPECT_DOUBLE_EQ(parse_real("--x", "inf", 0, false, std::numeric_limits<double>::infinity(), true),
                   std::numeric_limits<double>::infinity());
  for (const char* bad : {"", "0", "1.0001", "-0.5", "nan", "x", "0.5x", "0.5 ", "inf", "1e999"})
    EXPECT_THROW(parse_real("--x", bad, 0, false, 1, true), UserError) << bad;
}

TEST(FormatReal, IsTheShortestThatReadsBack) {
  EXPECT_EQ(format_real(0.1), "0.1");
  EXPECT_EQ(format_real(1), "1");
  EXPECT_EQ(format_real(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace tpsim::text_test
