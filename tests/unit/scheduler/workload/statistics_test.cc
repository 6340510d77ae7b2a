#include "scheduler/workload/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "kvcache/radix_cache.h"

namespace tpsim::scheduler {
namespace {

using kvcache::TokenSequence;

TEST(Distribution, PercentilesAsNumpyGivesThem) {
  const Distribution d = describe(std::vector<double>{15, 20, 35, 40, 50});
  EXPECT_EQ(d.mean, 32);
  EXPECT_EQ(d.p50, 35);
  EXPECT_EQ(d.p25, 20);
  EXPECT_DOUBLE_EQ(d.p95, 48);
  EXPECT_DOUBLE_EQ(d.p1, 15.2);
  EXPECT_EQ(d.max, 50);
  EXPECT_EQ(describe(std::vector<double>{7}).p99, 7);
  EXPECT_EQ(describe(std::vector<double>{}).mean, 0);
}

// The same rule, token by token over everything inserted.
class PlainIndex {
 public:
  explicit PlainIndex(std::size_t page_size) : page_size_(page_size) {}
  std::size_t match(std::uint32_t space, const std::vector<std::uint64_t>& tokens, std::size_t limit) const {
    std::size_t best = 0;
    const auto found = inserted_.find(space);
    if (found == inserted_.end()) return 0;
    for (const auto& other : found->second) {
      const auto [a, b] = std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end());
      best = std::max(best, static_cast<std::size_t>(a - tokens.begin()));
    }
    return std::min(best, limit) / page_size_ * page_size_;
  }
  void insert(std::uint32_t space, std::vector<std::uint64_t> tokens) {
    tokens.resize(tokens.size() / page_size_ * page_size_);
    inserted_[space].push_back(std::move(tokens));
  }

 private:
  std::size_t page_size_;
  std::map<std::uint32_t, std::vector<std::vector<std::uint64_t>>> inserted_;
};

// The tree of the radix pool, as statistics use it: without pages.
TEST(BestHitRate, TheTreeAgreesWithAPlainReference) {
  for (const std::uint32_t page_size : {1, 2, 5, 16}) {
    std::mt19937_64 random(page_size);
    kvcache::RadixCache cache({.page_size = page_size}, nullptr, nullptr);
    PlainIndex plain(page_size);
    std::vector<TokenSequence> made;
    for (int i = 0; i < 1500; ++i) {
      // A new beginning, or that of an earlier sequence, then runs out of few ids so that prefixes meet.
      TokenSequence sequence;
      if (!made.empty() && random() % 3 != 0) {
        sequence = made[random() % made.size()];
        sequence.truncate(random() % (sequence.size() + 1));
      }
      for (std::uint64_t runs = 1 + random() % 4; runs > 0; --runs) {
        sequence.append({random() % 6, static_cast<std::uint32_t>(1 + random() % 12)});
      }
      made.push_back(sequence);
      std::vector<std::uint64_t> tokens;
      for (const kvcache::TokenRun& run : sequence.runs()) {
        for (std::uint32_t t = 0; t < run.length; ++t) tokens.push_back(run.first + t);
      }
      const auto space = static_cast<std::uint32_t>(random() % 2);
      const std::size_t limit = random() % 2 == 0 ? tokens.size() - 1 : random() % 40;
      ASSERT_EQ(cache.match_prefix(sequence, static_cast<std::uint32_t>(limit), space).matched_tokens,
                plain.match(space, tokens, limit))
          << page_size << " " << i;
      if (random() % 2 == 0) {
        cache.insert(sequence, static_cast<std::uint32_t>(sequence.size()), {}, 0, space);
        plain.insert(space, tokens);
      }
    }
  }
}

Workload three_turns() {
  Workload workload;
  const auto add = [&workload](double time, std::uint32_t length, bool output) {
    WorkloadRequest request;
    request.arrival_time = time;
    request.prompt.append({0, length});
    request.max_new_tokens = 10;
    request.session = 1;
    if (output) request.output.append({length, 10});
    workload.requests.push_back(std::move(request));
  };
  add(0, 100, true);
  add(1, 150, true);
  add(4, 150, true);
  return workload;
}

TEST(Statistics, BestHitRateCountsAnswersButNeverAWholePrompt) {
  const Workload workload = three_turns();
  const std::uint32_t page_sizes[] = {1, 16, 64};
  const WorkloadStatistics statistics = describe(WorkloadView(workload), page_sizes, 4);
  EXPECT_EQ(statistics.best_hit_rates[0].hit_tokens, 109u + 149u);
  EXPECT_EQ(statistics.best_hit_rates[1].hit_tokens, 96u + 144u);
  EXPECT_EQ(statistics.best_hit_rates[2].hit_tokens, 64u + 128u);
  EXPECT_DOUBLE_EQ(statistics.best_hit_rates[0].hit_rate, 258.0 / 400);
}

TEST(Statistics, AnswersWithoutNamesAreNotFound) {
  Workload workload = three_turns();
  for (WorkloadRequest& request : workload.requests) request.output.clear();
  const std::uint32_t page_sizes[] = {1};
  EXPECT_EQ(describe(WorkloadView(workload), page_sizes, 4).best_hit_rates[0].hit_tokens, 100u + 149u);
}

TEST(Statistics, NamespacesDoNotShare) {
  Workload workload = three_turns();
  workload.extra_keys.emplace_back("x");
  workload.requests[1].extra_key = 1;
  const std::uint32_t page_sizes[] = {1};
  const WorkloadStatistics statistics = describe(WorkloadView(workload), page_sizes, 4);
  EXPECT_EQ(statistics.best_hit_rates[0].hit_tokens, 0u + 109u);
  EXPECT_EQ(statistics.namespaces, 2u);
}

TEST(Statistics, TurnsAndThinkTimes) {
  Workload workload = three_turns();
  workload.requests[0].think_time = 100;  // nothing comes before it
  workload.requests[2].think_time = 2.5;
  workload.requests.push_back(workload.requests[2]);
  workload.requests[3].session = 0;
  workload.requests[3].think_time.reset();
  const WorkloadStatistics statistics = describe(WorkloadView(workload), {}, 4);
  EXPECT_EQ(statistics.requests, 4u);
  EXPECT_EQ(statistics.sessions, 1u);
  EXPECT_EQ(statistics.turns, 3u);
  EXPECT_EQ(statistics.session_turns.mean, 3);
  EXPECT_EQ(statistics.turn_gap.mean, 2);  // 1 and 3
  EXPECT_EQ(statistics.named_think, 1u);
  EXPECT_EQ(statistics.think_time.max, 2.5);
}

TEST(Statistics, CountsRatesAndBurstiness) {
  const WorkloadStatistics statistics = describe(WorkloadInMemory(three_turns()), {}, 4);
  EXPECT_EQ(statistics.requests, 3u);
  EXPECT_EQ(statistics.sessions, 1u);
  EXPECT_EQ(statistics.input_tokens, 400u);
  EXPECT_EQ(statistics.output_tokens, 30u);
  EXPECT_EQ(statistics.duration, 4);
  EXPECT_EQ(statistics.request_rate, 0.75);
  EXPECT_EQ(statistics.burstiness, 0.5);  // gaps 1 and 3
  EXPECT_EQ(statistics.interval, 1);
  EXPECT_EQ(statistics.arrivals, (std::vector<std::uint64_t>{1, 1, 0, 1}));
}

TEST(Statistics, OneRequestOrAllAtOnce) {
  Workload workload = three_turns();
  for (WorkloadRequest& request : workload.requests) request.arrival_time = 0;
  const WorkloadStatistics statistics = describe(WorkloadView(workload), {}, 4);
  EXPECT_EQ(statistics.request_rate, 0);
  EXPECT_EQ(statistics.burstiness, 0);
  EXPECT_TRUE(statistics.arrivals.empty());
  workload.requests.resize(1);
  EXPECT_EQ(describe(WorkloadView(workload), {}, 4).requests, 1u);
}

}  // namespace
}  // namespace tpsim::scheduler
