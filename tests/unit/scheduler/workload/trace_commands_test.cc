// tpsim trace generate | inspect | convert, from the command line to the file.
#include "launch/commands/trace/trace_commands.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/trace_reader.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::launch {
namespace {

struct Outcome {
  int status = -1;
  std::string out;
  std::string error;  // UserError or what CLI11 says
};

Outcome tpsim(std::vector<std::string> arguments) {
  Outcome outcome;
  CLI::App app("test");
  Action action;
  add_trace_commands(*app.add_subcommand("trace"), action);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  ::testing::internal::CaptureStdout();
  try {
    app.parse(arguments);
    outcome.status = action();
  } catch (const UserError& error) {
    outcome.error = error.what();
  } catch (const CLI::ParseError& error) {
    outcome.error = error.what();
  }
  std::fflush(stdout);
  outcome.out = ::testing::internal::GetCapturedStdout();
  return outcome;
}

class TraceCommands : public ::testing::Test {
 protected:
  std::string file(std::string_view name) { return (folder_ / name).string(); }
  testing::TemporaryFolder folder_;
};

TEST_F(TraceCommands, GenerateThenInspectThenConvert) {
  const Outcome made =
      tpsim({"trace", "generate", "--output", file("a.jsonl.gz"), "--duration", "60", "--seed", "7"});
  ASSERT_EQ(made.status, 0) << made.error;
  EXPECT_NE(made.out.find("requests over"), std::string::npos);

  const Outcome text = tpsim({"trace", "inspect", file("a.jsonl.gz"), "--intervals", "5"});
  ASSERT_EQ(text.status, 0) << text.error;
  EXPECT_NE(text.out.find("best possible prefix hit rate"), std::string::npos);
  EXPECT_NE(text.out.find("page size 64"), std::string::npos);
  EXPECT_NE(text.out.find("think times       mean"), std::string::npos);
  EXPECT_NE(text.out.find("█"), std::string::npos);

  const Outcome json = tpsim({"trace", "inspect", "--page-size", "32,128", file("a.jsonl.gz"), "--json"});
  ASSERT_EQ(json.status, 0) << json.error;
  const nlohmann::json report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["format"], "tpsim");
  EXPECT_EQ(report["best_hit_rates"].size(), 3u);
  EXPECT_EQ(report["best_hit_rates"][1]["page_size"], 32);
  EXPECT_GT(report["best_hit_rates"][0]["hit_rate"], 0.3);

  const Outcome converted = tpsim({"trace", "convert", file("a.jsonl.gz"), file("b.jsonl"), "--time-scale",
                                   "0.5", "--num-prompts", "80"});
  ASSERT_EQ(converted.status, 0) << converted.error;
  const scheduler::Workload a = scheduler::read_trace(folder_ / "a.jsonl.gz");
  const scheduler::Workload b = scheduler::read_trace(folder_ / "b.jsonl");
  EXPECT_EQ(report["requests"], a.requests.size());
  ASSERT_EQ(b.requests.size(), 80u);
  EXPECT_EQ(b.requests[79].arrival_time, a.requests[79].arrival_time / 2);
  EXPECT_EQ(b.requests[79].prompt, a.requests[79].prompt);
  std::size_t thoughts = 0;
  for (std::size_t i = 0; i < b.requests.size(); ++i) {
    ASSERT_EQ(b.requests[i].think_time.has_value(), a.requests[i].think_time.has_value());
    if (!b.requests[i].think_time) continue;
    EXPECT_EQ(*b.requests[i].think_time, *a.requests[i].think_time / 2);
    ++thoughts;
  }
  EXPECT_GT(thoughts, 0u);
}

TEST_F(TraceCommands, ConvertSortsOnlyWhenAsked) {
  testing::write_file(folder_ / "u.csv",
                      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                      "2023-11-16 18:15:47,3,4\n2023-11-16 18:15:46,5,6\n");
  const Outcome refused = tpsim({"trace", "convert", file("u.csv"), file("s.csv"), "--format", "azure"});
  EXPECT_NE(refused.error.find("u.csv:3: the request arrives 1 seconds before"), std::string::npos)
      << refused.error;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "s.csv"));
  const Outcome sorted =
      tpsim({"trace", "convert", file("u.csv"), file("s.csv"), "--format", "azure", "--sort"});
  ASSERT_EQ(sorted.status, 0) << sorted.error;
  EXPECT_EQ(testing::read_file(folder_ / "s.csv"),
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2000-01-01 00:00:00.0000000,5,6\n2000-01-01 00:00:01.0000000,3,4\n");
}

TEST_F(TraceCommands, InspectTellsWhatWasLeftOut) {
  testing::write_file(folder_ / "b.csv",
                      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                      "1,x,3,0,3,y\n1,x,3,4,7,y\n");
  const Outcome outcome = tpsim({"trace", "inspect", file("b.csv")});
  EXPECT_NE(outcome.out.find("note: 1 failed requests"), std::string::npos);
  EXPECT_NE(outcome.out.find("all requests arrive at once"), std::string::npos);
}

TEST_F(TraceCommands, BadFlags) {
  const auto refused = [](std::vector<std::string> arguments, std::string_view part) {
    const Outcome outcome = tpsim(std::move(arguments));
    EXPECT_EQ(outcome.status, -1);
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  refused({"trace"}, "subcommand");
  refused({"trace", "generate"}, "--output");
  refused({"trace", "generate", "--output", file("x"), "--seed", "-1"}, "--seed");
  refused({"trace", "generate", "--output", file("x"), "--burstiness", "0"}, "--burstiness is 0");
  refused({"trace", "inspect", file("none")}, "none: no such file");
  refused({"trace", "inspect", file("none"), "--page-size", "0"}, "--page-size is 0");
  refused({"trace", "inspect", file("none"), "--page-size", "16,x"}, "--page-size: x is not a whole number");
  refused({"trace", "inspect", file("none"), "--intervals", "0"}, "--intervals is 0");
  refused({"trace", "convert", file("none"), file("x"), "--time-scale", "nan"}, "--time-scale is nan");
  refused({"trace", "convert", file("none")}, "OUT");
  refused({"trace", "convert", file("none"), file("x"), "--from", "what"}, "there is no trace format");
}

}  // namespace
}  // namespace tpsim::launch
