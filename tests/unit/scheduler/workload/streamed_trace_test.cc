// Traces that are read while they are served give what read_trace() gives.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_stream.h"
#include "scheduler/workload/trace_writer.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::scheduler {
namespace {

constexpr std::size_t kHoldNothing = 0;

void expect_same(const StreamedWorkload& streamed, const Workload& held, const std::string& what) {
  const Workload all = in_memory(streamed);
  EXPECT_EQ(all.name, held.name) << what;
  EXPECT_EQ(all.format, held.format) << what;
  EXPECT_EQ(all.notes, held.notes) << what;
  EXPECT_TRUE(all.requests == held.requests) << what;
  const WorkloadOutline& a = streamed.outline();
  const WorkloadOutline b = WorkloadView(held).outline();
  EXPECT_EQ(a.requests, b.requests) << what;
  EXPECT_EQ(a.turns, b.turns) << what;
  EXPECT_EQ(a.conversations, b.conversations) << what;
  EXPECT_EQ(a.images, b.images) << what;
  EXPECT_EQ(a.unsized_images, b.unsized_images) << what;
  EXPECT_EQ(a.shortest_prompt, b.shortest_prompt) << what;
  EXPECT_EQ(a.first_arrival, b.first_arrival) << what;
  EXPECT_EQ(a.last_arrival, b.last_arrival) << what;
  EXPECT_EQ(a.last_start, b.last_start) << what;
  EXPECT_EQ(a.without_accept_lens, b.without_accept_lens) << what;
  EXPECT_EQ(a.longest_accept_len, b.longest_accept_len) << what;
  EXPECT_EQ(a.longest_accepting, b.longest_accepting) << what;
  EXPECT_TRUE(a.followed == b.followed) << what;
}

class StreamedTrace : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  // Held wholly, up to some request, and not at all.
  void check(const std::filesystem::path& path, const ReadOptions& options) {
    const Workload held = read_trace(path, options);
    for (const std::size_t most : {kHoldNothing, std::size_t{2000}, kMostHeldBytes}) {
      const auto streamed = open_trace(path, options, most);
      for (int reading = 0; reading < 2; ++reading)
        expect_same(*streamed, held, path.filename().string() + " " + std::to_string(most));
    }
  }
  testing::TemporaryFolder folder_;
};

// Conversations that overlap, prompts by length and by ids, namespaces, now and then out of order.
std::string random_trace(std::mt19937_64& random, bool in_order) {
  std::string text;
  double time = static_cast<double>(random() % 1000);
  const int requests = 1 + static_cast<int>(random() % 40);
  for (int i = 0; i < requests; ++i) {
    time += static_cast<double>(random() % 4) / 2;
    const double at = !in_order && random() % 5 == 0 ? time / 2 : time;
    text +=
        "{\"arrival_time\":" + std::to_string(at) + ",\"max_new_tokens\":" + std::to_string(1 + random() % 9);
    if (random() % 3 != 0) text += ",\"session_id\":\"conversation " + std::to_string(random() % 6) + '"';
    if (random() % 3 == 0) text += ",\"extra_key\":\"" + std::to_string(random() % 3) + '"';
    if (random() % 3 == 0) text += ",\"accept_lens\":[" + std::to_string(1 + random() % 5) + "]";
    if (random() % 4 == 0) text += ",\"images\":[[30,40]]";
    text += random() % 2 == 0 ? ",\"prompt_len\":" + std::to_string(1 + random() % 100)
                              : ",\"prompt\":[[" + std::to_string(random() % 1000) + ",7]]";
    text += "}\n";
  }
  return text;
}

TEST_F(StreamedTrace, OfAllFormatsEqualsTheTraceInMemory) {
  check(file("mooncake", R"({"timestamp":500,"input_length":600,"output_length":5,"hash_ids":[0,1]})"
                         "\n"
                         R"({"timestamp":1000,"input_length":3,"output_length":1,"hash_ids":[9]})"),
        {});
  const auto azure = file("azure",
                          "TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n"
                          "2023-11-16 23:59:59.6805900,374,44,0\n2023-11-17 00:00:00.6805901,396,109,2\n"
                          "2023-11-17 00:00:00.7,5,1,1\n");
  check(azure, {});
  check(azure, {.num_prompts = 2});
  check(
      file("burstgpt",
           "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
           "5,a,1,ChatGPT,472,18,490,log\n45,b,1,ChatGPT,1087,0,1087,log\n46,a,1,ChatGPT,417,276,693,log\n"),
      {});
  check(file("sharegpt", R"([{"prompt_len":3,"output_len":4},{"prompt":[1,2,3],"output":[9,8]}])"), {});
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto path = file("tpsim", random_trace(random, true));
    check(path, {});
    check(path, {.num_prompts = 1 + random() % 50});
    check(path, {.sort = true});
    check(file("unordered", random_trace(random, false)), {.sort = true});
  }
}

TEST_F(StreamedTrace, OfBadTracesTellsTheSameMistakes) {
  const std::string good = R"({"arrival_time":1,"prompt_len":3,"max_new_tokens":1})";
  const std::string early = R"({"arrival_time":0,"prompt_len":3,"max_new_tokens":1})";
  const std::string high = R"({"arrival_time":2,"prompt":[[281474976710655,1]],"max_new_tokens":1})";
  for (const std::string& text :
       {std::string(), good + "\n" + early, good + "\n{", good + "\n" + high,
        R"({"arrival_time":2e10,"prompt_len":1,"max_new_tokens":1})" + std::string()}) {
    const auto path = file("bad", text);
    std::string expected;
    try {
      read_trace(path);
    } catch (const UserError& error) {
      expected = error.what();
    }
    ASSERT_NE(expected, "") << text;
    try {
      open_trace(path, {}, kHoldNothing);
      FAIL() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), expected);
    }
  }
}

TEST_F(StreamedTrace, OfAPipeIsPutAside) {
  std::mt19937_64 random(11);
  std::string text;
  while (text.size() < 300'000) text = text + R"({"prompt_len":30,"output_len":40})" + "\n";
  const Workload held = read_trace(file("plain", text));
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << text; });
  const auto streamed = open_trace(pipe, {}, kHoldNothing);
  writer.join();
  Workload expected = held;
  expected.name = pipe.string();
  for (int reading = 0; reading < 2; ++reading) expect_same(*streamed, expected, "pipe");
}

TEST_F(StreamedTrace, ThatChangesWhileItIsServedIsRefused) {
  const auto path = file("t", std::string(20, '\n') + R"({"prompt_len":3,"output_len":4})" + "\n");
  const auto streamed = open_trace(path, {}, kHoldNothing);
  expect_same(*streamed, read_trace(path), "unchanged");
  std::ofstream(path, std::ios::app) << R"({"prompt_len":3,"output_len":4})";
  try {
    in_memory(*streamed);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("has changed while it was read"), std::string::npos);
  }
}

TEST(LabelNumbers, AreThoseOfAMapThatForgets) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 20; ++round) {
    LabelNumbers numbers;
    std::unordered_map<std::string, std::uint32_t> known;
    std::uint32_t last = 0;
    std::uint64_t next = 0;
    for (int step = 0; step < 20'000; ++step) {
      if (random() % 2 == 0 || known.empty()) {
        const std::string label = "label of some length " + std::to_string(next++);
        ASSERT_EQ(numbers.of(label), ++last);
        known[label] = last;
      } else {
        const std::string label = "label of some length " + std::to_string(random() % next);
        const auto entry = known.find(label);
        if (entry == known.end()) continue;
        ASSERT_EQ(numbers.of(label), entry->second);
        if (random() % (1 + static_cast<unsigned>(round)) != 0) continue;
        numbers.forget(label);
        known.erase(entry);
      }
      ASSERT_EQ(numbers.size(), known.size());
    }
    for (const auto& [label, number] : known) ASSERT_EQ(numbers.of(label), number);
  }
}

}  // namespace
}  // namespace tpsim::scheduler
