// Compared with the datasets of SGLang 0.5.23 (sglang/benchmark/datasets, NumPy 2.4, Python 3.11), run with
// input_ids=True and a vocabulary of 1,000 tokens.
#include "scheduler/workload/benchmark_datasets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {
namespace {

// Group by first appearance, prompt tokens, output tokens.
using Row = std::tuple<int, int, int>;

std::vector<Row> rows(const SharedPrefixOptions& options) {
  std::map<kvcache::TokenId, int> groups;
  std::vector<Row> result;
  for (const WorkloadRequest& r : in_memory(SharedPrefixWorkload(options)).requests) {
    const int group =
        groups.try_emplace(r.prompt.runs().front().first, static_cast<int>(groups.size())).first->second;
    result.emplace_back(group, static_cast<int>(r.prompt.size()), static_cast<int>(r.max_new_tokens));
  }
  return result;
}

SharedPrefixOptions small(std::uint32_t seed) {
  SharedPrefixOptions options;
  options.num_groups = 3;
  options.prompts_per_group = 4;
  options.system_prompt_len = 50;
  options.question_len = 20;
  options.output_len = 10;
  options.range_ratio = 0.5;
  options.seed = seed;
  return options;
}

SharedPrefixOptions larger(std::uint32_t seed) {
  SharedPrefixOptions options;
  options.num_groups = 20;
  options.prompts_per_group = 30;
  options.system_prompt_len = 300;
  options.question_len = 40;
  options.output_len = 33;
  options.range_ratio = 0.2;
  options.seed = seed;
  return options;
}

// Of all rows and their order.
long checksum(const std::vector<Row>& rows) {
  long sum = 0;
  long i = 0;
  for (const auto& [group, input, output] : rows) sum += ++i * (group * 7 + input * 3 + output);
  return sum;
}

TEST(SharedPrefix, IsTheBenchmarksShuffled) {
  EXPECT_EQ(rows(small(42)), (std::vector<Row>{{0, 52, 8},
                                               {1, 45, 9},
                                               {1, 51, 7},
                                               {2, 64, 6},
                                               {0, 56, 9},
                                               {0, 59, 8},
                                               {2, 63, 8},
                                               {2, 60, 10},
                                               {2, 56, 10},
                                               {1, 48, 10},
                                               {0, 53, 5},
                                               {1, 47, 6}}));
  EXPECT_EQ(checksum(rows(larger(1))), 133595818);
}

TEST(SharedPrefix, IsTheBenchmarksInOrder) {
  SharedPrefixOptions options = small(42);
  options.ordered = true;
  EXPECT_EQ(rows(options), (std::vector<Row>{{0, 51, 7},
                                             {0, 48, 10},
                                             {0, 45, 9},
                                             {0, 47, 6},
                                             {1, 63, 8},
                                             {1, 56, 10},
                                             {1, 60, 10},
                                             {1, 64, 6},
                                             {2, 59, 8},
                                             {2, 56, 9},
                                             {2, 53, 5},
                                             {2, 52, 8}}));
}

TEST(SharedPrefix, IsTheBenchmarksZipf) {
  SharedPrefixOptions options = small(42);
  options.zipf_alpha = 1.2;
  EXPECT_EQ(rows(options), (std::vector<Row>{{0, 52, 8},
                                             {0, 53, 9},
                                             {1, 64, 7},
                                             {1, 64, 6},
                                             {2, 48, 9},
                                             {2, 51, 8},
                                             {2, 50, 8},
                                             {1, 60, 10},
                                             {0, 51, 10},
                                             {2, 48, 10},
                                             {2, 45, 5},
                                             {1, 60, 6}}));
  options = larger(5);
  options.zipf_alpha = 1;
  EXPECT_EQ(checksum(rows(options)), 143311402);
}

TEST(SharedPrefix, TurnsRepeatWhatWasSaidAndFollowAtOnce) {
  SharedPrefixOptions options = small(3);
  options.num_turns = 3;
  const Workload workload = in_memory(SharedPrefixWorkload(options));
  ASSERT_EQ(workload.requests.size(), 36u);
  for (std::size_t i = 0; i < 36; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    EXPECT_EQ(request.session, i / 3 + 1);
    EXPECT_EQ(request.think_time.has_value(), i % 3 != 0);
    if (i % 3 == 0) continue;
    kvcache::TokenSequence before = workload.requests[i - 1].prompt;
    before.append(workload.requests[i - 1].output);
    kvcache::TokenSequence beginning = request.prompt;
    beginning.truncate(before.size());
    EXPECT_EQ(beginning, before);
    EXPECT_EQ(request.max_new_tokens, workload.requests[i - 1].max_new_tokens);
  }
}

TEST(SharedPrefix, BadFlagsAreNamed) {
  const auto refused = [](auto change, const std::string& flag) {
    SharedPrefixOptions options;
    change(options);
    try {
      in_memory(SharedPrefixWorkload(options));
      ADD_FAILURE() << flag << " was accepted";
    } catch (const UserError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(flag)) << error.what();
    }
  };
  refused([](SharedPrefixOptions& o) { o.num_groups = 0; }, "--gsp-num-groups 0");
  refused([](SharedPrefixOptions& o) { o.num_groups = 100'000'000; }, "--gsp-prompts-per-group 16");
  refused([](SharedPrefixOptions& o) { o.num_turns = 1'000'000; }, "--gsp-num-turns");
  refused([](SharedPrefixOptions& o) { o.output_len = 0; }, "--gsp-output-len 0");
  refused([](SharedPrefixOptions& o) { o.question_len = std::uint64_t{1} << 31; }, "--gsp-question-len");
  refused([](SharedPrefixOptions& o) { o.system_prompt_len = kMaxRequestTokens; }, "--gsp-system-prompt-len");
  refused([](SharedPrefixOptions& o) { o.range_ratio = 1.1; }, "--gsp-range-ratio");
  refused([](SharedPrefixOptions& o) { o.zipf_alpha = 0; }, "--gsp-zipf-alpha 0");
}

TEST(Random, LengthsAreTheBenchmarks) {
  RandomOptions options;
  options.num_prompts = 8;
  options.seed = 42;
  std::vector<std::size_t> inputs;
  for (const WorkloadRequest& r : in_memory(RandomWorkload(options)).requests)
    inputs.push_back(r.prompt.size());
  EXPECT_EQ(inputs, (std::vector<std::size_t>{103, 436, 861, 271, 107, 72, 701, 21}));
}

TEST(ShareGpt, IsShuffledPrunedAndCut) {
  std::string lines;
  for (std::uint32_t i = 0; i < 12; ++i) {
    const std::string prompt(2 * i, 'x');  // the first two have too few tokens
    lines += nlohmann::json{{"prompt", prompt}, {"output", i == 7 ? "x" : "word word"}}.dump() + "\n";
  }
  int counted = 0;
  const ReadOptions options = {
      .format = "sharegpt", .num_prompts = 4, .draw = 42, .count_tokens = [&counted](std::string_view text) {
        ++counted;
        return text.size() / 2;
      }};
  std::vector<std::size_t> positions;
  for (const WorkloadRequest& r : read_trace(lines, "t", options).requests)
    positions.push_back(r.prompt.size());
  // random.shuffle gives 7 5 2 8 9 6 11 3 4 0 1 10; what is not needed is not counted.
  EXPECT_EQ(positions, (std::vector<std::size_t>{5, 2, 8, 9}));
  EXPECT_EQ(counted, 2 * 5);
  EXPECT_THROW(read_trace(R"({"prompt": "x", "output": "word word"})", "t", options), UserError);
}

}  // namespace
}  // namespace tpsim::scheduler
