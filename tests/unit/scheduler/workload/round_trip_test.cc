// What is written is read back.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::scheduler {
namespace {

// Any workload that a reader may give: numbers of sessions and namespaces by first appearance.
Workload any_workload(std::mt19937_64& random) {
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const std::vector<std::string> names = {"plain", "with \"quotes\"\\", "é\n\t", "日本", " "};
  Workload workload;
  double time = 0;
  std::uint32_t sessions = 0;
  for (std::uint64_t count = 1 + below(20); count > 0; --count) {
    WorkloadRequest request;
    request.arrival_time = time;
    time += below(3) == 0 ? 0 : static_cast<double>(random() >> 11) * 0x1p-50;
    for (std::uint64_t runs = 1 + below(5); runs > 0; --runs) {
      request.prompt.append({below(kGeneratedTokenBase - 5000), static_cast<std::uint32_t>(1 + below(5000))});
    }
    request.max_new_tokens = static_cast<std::uint32_t>(1 + below(3000));
    if (below(2) == 0) {
      request.output.append({below(1000), 1});
      if (request.max_new_tokens > 1) request.output.append({below(1 << 30), request.max_new_tokens - 1});
    }
    request.priority = static_cast<std::int32_t>(below(5)) - 2;
    if (below(2) == 0) {
      request.session = static_cast<std::uint32_t>(1 + below(sessions + 1));
      sessions = std::max(sessions, request.session);
      if (below(2) == 0) request.think_time = static_cast<double>(random() >> 11) * 0x1p-45;
    }
    if (below(3) == 0) {
      const std::uint64_t key = 1 + below(std::min(workload.extra_keys.size(), names.size()));
      if (key == workload.extra_keys.size()) workload.extra_keys.push_back(names[key - 1]);
      request.extra_key = static_cast<std::uint32_t>(key);
    }
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

TEST(RoundTrip, TpsimHoldsEverything) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    Workload workload = any_workload(random);
    for (WorkloadRequest& request : workload.requests) {
      for (std::uint64_t steps = random() % 9; steps > 0; --steps)
        request.accept_lens.push_back(static_cast<std::uint32_t>(1 + random() % 8));
    }
    const std::string text = format_trace(workload, "tpsim");
    const Workload again = read_trace(text, "t");
    ASSERT_TRUE(again.requests == workload.requests) << text;
    ASSERT_EQ(again.extra_keys, workload.extra_keys);
    ASSERT_EQ(again.format, "tpsim");
  }
}

TEST(RoundTrip, Mooncake) {
  std::mt19937_64 random(2);
  Workload workload;
  for (int i = 0; i < 500; ++i) {
    WorkloadRequest request;
    request.arrival_time = i * 37 / 1000.0;
    for (std::uint64_t blocks = random() % 6; blocks > 0; --blocks)
      request.prompt.append({random() % 50 * 512, 512});
    request.prompt.append({random() % 50 * 512, static_cast<std::uint32_t>(1 + random() % 512)});
    request.max_new_tokens = static_cast<std::uint32_t>(1 + random() % 100);
    workload.requests.push_back(std::move(request));
  }
  const Workload again = read_trace(format_trace(workload, "mooncake"), "t");
  EXPECT_EQ(again.format, "mooncake");
  EXPECT_TRUE(again.requests == workload.requests);
}

TEST(RoundTrip, Azure) {
  Workload workload;
  kvcache::TokenId next = 0;
  for (std::uint32_t i = 0; i < 500; ++i) {
    WorkloadRequest request;
    request.arrival_time = i * 98'765'432'10 / 1e7;  // days
    request.prompt.append({next, 1 + i % 77});
    next += request.prompt.size();
    request.max_new_tokens = 1 + i;
    workload.requests.push_back(std::move(request));
  }
  const Workload again = read_trace(format_trace(workload, "azure"), "t");
  EXPECT_EQ(again.format, "azure");
  EXPECT_TRUE(again.requests == workload.requests);
}

// The writer's complaint about a workload of two ordinary requests after a change.
template <typename Change>
std::string refusal(const char* format, Change change) {
  Workload workload;
  for (const kvcache::TokenId first : {0, 512}) {
    WorkloadRequest request;
    request.prompt.append({first, 512});
    request.max_new_tokens = 2;
    workload.requests.push_back(std::move(request));
  }
  workload.extra_keys.emplace_back("x");
  change(workload.requests[1]);
  try {
    format_trace(workload, format);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(written)";
}

TEST(Writer, RefusesWhatAFormatCannotHold) {
  for (const char* format : {"mooncake", "azure"}) {
    const auto refused = [format](auto change, std::string_view part) {
      const std::string said = refusal(format, change);
      EXPECT_NE(said.find("request 2 cannot be written"), std::string::npos) << format << ": " << said;
      EXPECT_NE(said.find(part), std::string::npos) << format << ": " << said;
    };
    EXPECT_EQ(refusal(format, [](WorkloadRequest&) {}), "(written)");
    refused([](WorkloadRequest& r) { r.priority = 1; }, "priority");
    refused([](WorkloadRequest& r) { r.session = 1; }, "session_id");
    refused([](WorkloadRequest& r) { r.extra_key = 1; }, "extra_key");
    refused([](WorkloadRequest& r) { r.output.append({5, 2}); }, "answer");
    refused([](WorkloadRequest& r) { r.arrival_time = 1.0 / 3; }, "arrival time");
  }
  const auto share = [](WorkloadRequest& r) {
    r.prompt = kvcache::TokenSequence(std::vector<kvcache::TokenRun>{{511, 9}});
  };
  EXPECT_NE(refusal("azure", share).find("shares tokens"), std::string::npos);
  EXPECT_NE(refusal("mooncake", share).find("blocks of 512"), std::string::npos);
  EXPECT_NE(refusal("tpsim ", share).find("the formats are tpsim, mooncake, azure"), std::string::npos);
}

TEST(Writer, FilesAppearWholeOrNotAtAll) {
  const testing::TemporaryFolder folder;
  write_trace_file(folder / "a.jsonl", "text\n");
  EXPECT_EQ(testing::read_file(folder / "a.jsonl"), "text\n");
  write_trace_file(folder / "a.jsonl", "other\n");
  EXPECT_EQ(testing::read_file(folder / "a.jsonl"), "other\n");
  EXPECT_THROW(write_trace_file(folder / "", "x"), UserError);
  EXPECT_THROW(write_trace_file(folder / "no/such/folder", "x"), UserError);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder / "")) ++files;
  EXPECT_EQ(files, 1u) << "nothing is left behind";
}

}  // namespace
}  // namespace tpsim::scheduler
