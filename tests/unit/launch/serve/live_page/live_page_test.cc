#include "launch/serve/page/live_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/unit/launch/serve/live_page/sample_statistics.h"

namespace tpsim::launch {
namespace {

TEST(LivePage, AsksForNothingButItsFigures) {
  const std::string& page = live_page();
  EXPECT_EQ(page.find("@STYLE@"), std::string::npos);
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  for (const char* outside : {"src=\"", "href=\"http", "@import", "url(http", "//cdn"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_NE(page.find("live/data?after="), std::string::npos);
}

TEST(LivePage, FiguresAreThoseOfTheServer) {
  const auto data = nlohmann::json::parse(live_page_data(sample_statistics()));
  EXPECT_EQ(data["description"]["model"], "my \"own\" model");
  EXPECT_EQ(data["running"], 37);
  EXPECT_EQ(data["waiting"], 5);
  EXPECT_EQ(data["kv_used"], 400000);
  EXPECT_EQ(data["finished"], 990);
  EXPECT_EQ(data["ttft"]["count"], 100);
  EXPECT_NEAR(data["ttft"]["p50_ms"].get<double>(), 490, 5);
  EXPECT_NEAR(data["inter_token"]["p99_ms"].get<double>(), 98, 1);
  ASSERT_EQ(data["samples"].size(), 60U);
  ASSERT_EQ(data["columns"].size(), data["samples"][0].size());
  const auto column = [&](const std::string& name) {
    return static_cast<std::size_t>(std::find(data["columns"].begin(), data["columns"].end(), name) -
                                    data["columns"].begin());
  };
  EXPECT_EQ(data["samples"][59][column("time")], 600);
  EXPECT_EQ(data["samples"][59][column("decode")], 12000);
  EXPECT_EQ(data["samples"][59][column("ttft_ms")], 200);
}

// A page that looks once a second gets what is new.
TEST(LivePage, OnlyWhatIsNewIsSent) {
  const LiveStatistics statistics = sample_statistics();
  const std::string news = live_page_data(statistics, 590);
  EXPECT_EQ(nlohmann::json::parse(news)["samples"].size(), 1U);
  EXPECT_LT(news.size(), 2500U);
  EXPECT_TRUE(nlohmann::json::parse(live_page_data(statistics, 600))["samples"].empty());
}

TEST(LivePage, AFreshServerHasFigures) {
  const std::string text = live_page_data(LiveStatistics{});
  const auto data = nlohmann::json::parse(text);
  EXPECT_EQ(data["ttft"]["count"], 0);
  EXPECT_TRUE(data["samples"].empty());
  EXPECT_TRUE(data["samples"].is_array());
}

TEST(LivePage, PercentilesAreWithinOnePercent) {
  LiveHistogram values(kTtftEdges);
  EXPECT_EQ(values.percentile(50), 0);
  for (int i = 1; i <= 10000; ++i) values.observe(0.0001 * i);
  for (const double q : {1.0, 10.0, 50.0, 90.0, 99.0})
    EXPECT_NEAR(values.percentile(q), q / 100, 0.0101 * q / 100);
  LiveHistogram zeros(kQueueTimeEdges);
  zeros.observe(0, 3);
  zeros.observe(1e9);  // in the last bin
  EXPECT_EQ(zeros.percentile(50), 0);
  EXPECT_GT(zeros.percentile(99), 1e5);
}

// Names come from a command line: whatever bytes they have, the answer is JSON.
TEST(LivePage, NamesOfAnyBytes) {
  LiveStatistics statistics;
  statistics.description.served_model_name = "a\xff\"\n</script>";
  EXPECT_TRUE(nlohmann::json::accept(live_page_data(statistics)));
}

}  // namespace
}  // namespace tpsim::launch
