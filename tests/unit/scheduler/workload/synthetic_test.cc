// Generated loads, and the random numbers that they are made of.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_datasets.h"
#include "scheduler/workload/conversations.h"
#include "scheduler/workload/sampler.h"
#include "scheduler/workload/statistics.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"
#include "scheduler/workload/workload.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::scheduler {
namespace {

TEST(PortableMath, AgreesWithTheLibrary) {
  for (double x = -600; x < 600; x += 0.37) EXPECT_NEAR(portable_exp(x) / std::exp(x), 1, 1e-14) << x;
  for (double x = 1e-300; x < 1e300; x *= 3.7) {
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-14 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  for (double x = 0.9; x < 1.1; x += 1e-4) EXPECT_NEAR(portable_log(x), std::log(x), 1e-16) << x;
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_log(1), 0);
}

struct Moments {
  double mean, deviation;
};

Moments moments_of(const std::function<double()>& draw) {
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = draw();
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kCount;
  return {mean, std::sqrt(squares / kCount - mean * mean)};
}

TEST(Sampler, DistributionsHaveTheirMoments) {
  Sampler s(3);
  const auto expect = [](Moments m, double mean, double deviation) {
    EXPECT_NEAR(m.mean, mean, 0.02 * deviation);
    EXPECT_NEAR(m.deviation, deviation, 0.03 * deviation);
  };
  expect(moments_of([&] { return s.uniform(); }), 0.5, std::sqrt(1 / 12.0));
  expect(moments_of([&] { return s.normal(); }), 0, 1);
  expect(moments_of([&] { return s.exponential(4); }), 4, 4);
  expect(moments_of([&] { return s.lognormal(10, 0.5); }), 10 * std::exp(0.125),
         10 * std::exp(0.125) * std::sqrt(std::exp(0.25) - 1));
  expect(moments_of([&] { return s.gamma(4, 0.5); }), 2, 1);
  expect(moments_of([&] { return s.gamma(0.25, 8); }), 2, 4);
  expect(moments_of([&] { return static_cast<double>(s.geometric(3)); }), 3, std::sqrt(6.0));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(s.geometric(1), 1u);
}

TEST(Sampler, ValuesAreFixed) {
  // Changing any of these changes every generated trace.
  Sampler s(1);
  s.uniform();
  EXPECT_EQ(s.uniform(), 0x1.175c928118c7cp-3);
  EXPECT_EQ(s.normal(), -0x1.42c3b2b72217p-5);
  EXPECT_EQ(s.gamma(0.25, 4), 0x1.723147ad5796fp+0);
}

TEST(Random, LengthsAreInRangeAndShareNothing) {
  RandomOptions options;
  options.num_prompts = 2000;
  options.random_input_len = 1000;
  options.random_output_len = 10;
  options.random_range_ratio = 0.5;
  const Workload workload = in_memory(RandomWorkload(options));
  EXPECT_EQ(workload.format, "random");
  ASSERT_EQ(workload.requests.size(), 2000u);
  std::set<std::uint32_t> outputs;
  kvcache::TokenId end = 0;
  double sum = 0;
  for (const WorkloadRequest& request : workload.requests) {
    EXPECT_EQ(request.arrival_time, 0);
    ASSERT_EQ(request.prompt.runs().size(), 1u);
    EXPECT_EQ(request.prompt.runs()[0].first, end);
    end += request.prompt.size();
    EXPECT_GE(request.prompt.size(), 500u);
    EXPECT_LE(request.prompt.size(), 1000u);
    sum += static_cast<double>(request.prompt.size());
    outputs.insert(request.max_new_tokens);
  }
  EXPECT_NEAR(sum / 2000, 750, 15);
  EXPECT_EQ(outputs, (std::set<std::uint32_t>{5, 6, 7, 8, 9, 10}));
}

TEST(Random, RatioOneIsFixedAndRatioZeroBeginsAtOne) {
  RandomOptions options;
  options.num_prompts = 500;
  options.random_input_len = 3;
  options.random_output_len = 3;
  options.random_range_ratio = 1;
  for (const WorkloadRequest& r : in_memory(RandomWorkload(options)).requests) EXPECT_EQ(r.prompt.size(), 3u);
  options.random_range_ratio = 0;
  std::set<std::size_t> inputs, outputs;
  for (const WorkloadRequest& r : in_memory(RandomWorkload(options)).requests) {
    inputs.insert(r.prompt.size());
    outputs.insert(r.max_new_tokens);
  }
  EXPECT_EQ(inputs, (std::set<std::size_t>{1, 2, 3}));
  EXPECT_EQ(outputs, (std::set<std::size_t>{1, 2, 3}));
}

TEST(Random, SeedDecides) {
  RandomOptions options;
  const Workload a = in_memory(RandomWorkload(options));
  EXPECT_TRUE(a.requests == in_memory(RandomWorkload(options)).requests);
  options.seed = 2;
  EXPECT_FALSE(a.requests == in_memory(RandomWorkload(options)).requests);
}

template <typename Options, typename Make>
void expect_refused(Options options, Make make, const char* flag) {
  try {
    make(options);
    ADD_FAILURE() << flag << " was accepted";
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(flag)) << error.what();
  }
}

TEST(Random, BadFlagsAreNamed) {
  const auto refused = [](auto change, const char* flag) {
    RandomOptions options;
    change(options);
    expect_refused(
        options, [](const RandomOptions& o) { return in_memory(RandomWorkload(o)); }, flag);
  };
  refused([](RandomOptions& o) { o.num_prompts = 0; }, "--num-prompts");
  refused([](RandomOptions& o) { o.random_input_len = 0; }, "--random-input-len");
  refused([](RandomOptions& o) { o.random_output_len = std::uint64_t{1} << 31; }, "--random-output-len");
  refused([](RandomOptions& o) { o.random_range_ratio = 1.5; }, "--random-range-ratio");
  refused([](RandomOptions& o) { o.random_range_ratio = std::nan(""); }, "--random-range-ratio");
  refused(
      [](RandomOptions& o) {
        o.num_prompts = 100'000'000;
        o.random_input_len = 1 << 30;
      },
      "--num-prompts times");
}

TEST(Conversations, TurnsRepeatTheWholeHistoryWithItsAnswers) {
  ConversationOptions options;
  options.num_conversations = 200;
  options.duration = 0;
  const Workload workload = make_conversations(options);
  std::map<std::uint32_t, kvcache::TokenSequence> history;
  std::map<kvcache::TokenId, int> system_prompts;
  std::uint32_t sessions = 0;
  double last = 0;
  for (const WorkloadRequest& request : workload.requests) {
    EXPECT_GE(request.arrival_time, last);
    last = request.arrival_time;
    EXPECT_EQ(request.output.size(), request.max_new_tokens);
    EXPECT_LE(request.prompt.size(), options.max_prompt_len);
    EXPECT_LE(request.max_new_tokens, options.max_answer_len);
    kvcache::TokenSequence& before = history[request.session];
    kvcache::TokenSequence beginning = request.prompt;
    ASSERT_GT(beginning.size(), before.size());
    beginning.truncate(before.size());
    EXPECT_EQ(beginning, before);
    EXPECT_EQ(request.think_time.has_value(), !before.empty());
    if (before.empty()) {
      EXPECT_EQ(request.session, ++sessions) << "numbered by first appearance";
      ++system_prompts[request.prompt.runs().front().first];
    }
    before = request.prompt;
    before.append(request.output);
  }
  EXPECT_EQ(sessions, 200u);
  EXPECT_LE(system_prompts.size(), options.system_prompts);
  EXPECT_GT(system_prompts.size(), 5u);
}

TEST(Conversations, FollowTheirParameters) {
  ConversationOptions options;
  options.duration = 20'000;
  options.request_rate = 2;
  options.turns_mean = 2;
  options.burstiness = 3;
  const Workload workload = make_conversations(options);
  const std::uint32_t page_sizes[] = {1};
  const WorkloadStatistics statistics = describe(WorkloadView(workload), page_sizes, 10);
  // 3 % below the rate at most: conversations are cut at the end, and where the prompt becomes too long.
  EXPECT_NEAR(statistics.request_rate, 2, 0.15);
  EXPECT_NEAR(static_cast<double>(statistics.requests) / static_cast<double>(statistics.sessions), 2, 0.1);
  EXPECT_NEAR(statistics.output_length.p50, options.answer_median, 10);
  EXPECT_GT(statistics.best_hit_rates[0].hit_rate, 0.4);
  EXPECT_LE(workload.requests.back().arrival_time, 20'000);
  std::vector<double> starts;
  std::set<std::uint32_t> seen;
  for (const WorkloadRequest& r : workload.requests) {
    if (seen.insert(r.session).second) starts.push_back(r.arrival_time);
  }
  double squares = 0;
  const double mean = starts.back() / static_cast<double>(starts.size() - 1);
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const double gap = starts[i] - starts[i - 1] - mean;
    squares += gap * gap;
  }
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(starts.size() - 1)) / mean, 3, 0.15);
}

TEST(Conversations, WithoutSystemPromptsNothingIsSharedBetweenConversations) {
  ConversationOptions options;
  options.system_prompts = 0;
  options.turns_mean = 1;
  const std::uint32_t page_sizes[] = {1};
  EXPECT_EQ(
      describe(WorkloadInMemory(make_conversations(options)), page_sizes, 1).best_hit_rates[0].hit_tokens,
      0u);
}

TEST(Conversations, BadFlagsAreNamed) {
  const auto refused = [](auto change, const char* flag) {
    ConversationOptions options;
    change(options);
    expect_refused(options, make_conversations, flag);
  };
  refused([](ConversationOptions& o) { o.duration = 0; }, "--num-conversations and --duration");
  refused([](ConversationOptions& o) { o.duration = -1; }, "--duration");
  refused([](ConversationOptions& o) { o.request_rate = 0; }, "--request-rate");
  refused([](ConversationOptions& o) { o.burstiness = std::nan(""); }, "--burstiness");
  refused([](ConversationOptions& o) { o.turns_mean = 0.5; }, "--turns-mean");
  refused([](ConversationOptions& o) { o.message_median = INFINITY; }, "--message-median");
  refused([](ConversationOptions& o) { o.document_probability = 1.5; }, "--document-probability");
  refused([](ConversationOptions& o) { o.max_prompt_len = 0; }, "--max-prompt-len");
  refused([](ConversationOptions& o) { o.max_prompt_len = 1; }, "--max-prompt-len");
  refused([](ConversationOptions& o) { o.max_answer_len = 1 << 30; }, "--max-answer-len");
}

TEST(Conversations, ExtremeButLegalParametersStillMakeAWorkload) {
  ConversationOptions options;
  options.num_conversations = 50;
  options.duration = 0;
  options.burstiness = 20;
  options.message_sigma = options.answer_sigma = options.document_sigma = options.system_prompt_sigma = 5;
  options.max_prompt_len = 2;
  options.max_answer_len = 1;
  options.system_prompts = 1;
  const Workload workload = make_conversations(options);
  for (const WorkloadRequest& request : workload.requests) EXPECT_EQ(request.prompt.size(), 2u);
  EXPECT_TRUE(read_trace(format_trace(workload, "tpsim"), "t").requests == workload.requests);
}

TEST(Conversations, TheBundledSampleIsTheDefaultWorkload) {
  // Compared as text: how well zlib packs it depends on its version.
  const std::filesystem::path path =
      std::filesystem::path(TPSIM_SOURCE_DIR) / "launch/sample/conversations.jsonl.gz";
  const Workload sample = read_trace(path);
  const Workload made = make_conversations({});
  EXPECT_TRUE(sample.requests == made.requests)
      << "make it again: tpsim trace generate --output launch/sample/conversations.jsonl.gz";
  const testing::TemporaryFolder folder;
  write_trace_file(folder / "a.gz", format_trace(made, "tpsim"));
  write_trace_file(folder / "b.gz", format_trace(sample, "tpsim"));
  EXPECT_EQ(testing::read_file(folder / "a.gz"), testing::read_file(folder / "b.gz"));
}

}  // namespace
}  // namespace tpsim::scheduler
