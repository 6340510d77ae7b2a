#include "scheduler/policy.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "kvcache/chunk_cache.h"
#include "kvcache/radix_cache.h"
#include "proto/base/error.h"

namespace tpsim::scheduler {
namespace {

class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() : allocator_(100000, 1), radix_({1, kvcache::EvictionPolicy::kLru}, &allocator_, &rows_) {}

  static SchedulerConfig config(SchedulePolicy policy, std::uint64_t seed = 1) {
    SchedulerConfig config;
    config.schedule_policy = policy;
    config.random_seed = seed;
    return config;
  }
  Req* add(std::uint64_t id, std::vector<kvcache::TokenRun> prompt, std::uint32_t output = 10) {
    auto source = std::make_unique<WorkloadRequest>();
    source->prompt = kvcache::TokenSequence(prompt);
    source->max_new_tokens = output;
    auto req = std::make_unique<Req>();
    req->id = id;
    req->source = borrowed(*source);
    req->tokens = source->prompt;
    req->input_len = static_cast<std::uint32_t>(source->prompt.size());
    req->max_new_tokens = output;
    sources_.push_back(std::move(source));
    reqs_.push_back(std::move(req));
    return reqs_.back().get();
  }
  void cache(std::vector<kvcache::TokenRun> prompt) {
    const kvcache::TokenSequence key(prompt);
    std::vector<kvcache::PageRun> pages;
    ASSERT_TRUE(allocator_.alloc(static_cast<std::uint32_t>(key.size()), pages));
    radix_.insert(key, static_cast<std::uint32_t>(key.size()), pages, 0, 0);
  }
  static std::vector<std::uint64_t> ids(const std::vector<Req*>& waiting) {
    std::vector<std::uint64_t> out;
    for (const Req* req : waiting) out.push_back(req->id);
    return out;
  }

  kvcache::PageAllocator allocator_;
  kvcache::ReqToTokenPool rows_;
  kvcache::RadixCache radix_;
  std::vector<std::unique_ptr<WorkloadRequest>> sources_;
  std::vector<std::unique_ptr<Req>> reqs_;
};

using Ids = std::vector<std::uint64_t>;

TEST_F(PolicyTest, LpmPutsTheLongestMatchFirstAndKeepsArrivalOrderOtherwise) {
  cache({{1000, 300}});
  cache({{5000, 100}});
  std::vector<Req*> waiting = {add(0, {{9000, 50}}), add(1, {{5000, 120}}), add(2, {{1000, 400}}),
                               add(3, {{7000, 50}})};
  WaitingQueuePolicy policy(config(SchedulePolicy::kLpm), radix_);
  policy.calc_priority(waiting);
  EXPECT_EQ(ids(waiting), (Ids{2, 1, 0, 3}));
  EXPECT_EQ(waiting[0]->num_matched_prefix_tokens, 300u);
}

TEST_F(PolicyTest, LpmDefersRequestsWhosePrefixIsAboutToBeComputed) {
  // 1 and 2 share 40 tokens with 0, which goes first; 3 shares only 20.
  std::vector<Req*> waiting = {add(0, {{1000, 100}}), add(1, {{1000, 40}, {2000, 60}}),
                               add(2, {{1000, 40}, {3000, 60}}), add(3, {{1000, 20}, {4000, 60}})};
  WaitingQueuePolicy policy(config(SchedulePolicy::kLpm), radix_);
  policy.calc_priority(waiting);
  EXPECT_EQ(ids(waiting), (Ids{0, 3, 1, 2}));
}

TEST_F(PolicyTest, LpmFallsBackToFcfsAbove128Waiting) {
  cache({{1000, 300}});
  std::vector<Req*> waiting;
  for (std::uint64_t i = 0; i < 129; ++i) waiting.push_back(add(i, {{10000 + 100 * i, 50}}));
  waiting.back()->tokens = kvcache::TokenSequence(std::vector<kvcache::TokenRun>{{1000, 300}});
  waiting.back()->input_len = 300;
  WaitingQueuePolicy policy(config(SchedulePolicy::kLpm), radix_);
  policy.calc_priority(waiting);
  EXPECT_EQ(waiting.back()->id, 128u);
  waiting.erase(waiting.begin());
  policy.calc_priority(waiting);
  EXPECT_EQ(waiting.front()->id, 128u);
}

TEST_F(PolicyTest, WithoutARadixPoolLpmIsFcfs) {
  cache({{1000, 300}});
  std::vector<Req*> waiting = {add(0, {{9000, 50}}), add(1, {{1000, 400}})};
  kvcache::ChunkCache none(1, 0, &allocator_, &rows_, nullptr);
  WaitingQueuePolicy policy(config(SchedulePolicy::kLpm), none);
  policy.calc_priority(waiting);
  EXPECT_EQ(ids(waiting), (Ids{0, 1}));
}

TEST_F(PolicyTest, DfsWeightServesTheHeaviestBranchTogether) {
  cache({{1000, 100}});
  cache({{1000, 50}, {3000, 50}});
  cache({{8000, 100}});
  // Two requests under 8000, three under 1000 (two of them in one branch).
  std::vector<Req*> waiting = {add(0, {{8000, 120}}), add(1, {{1000, 130}}), add(2, {{8000, 130}}),
                               add(3, {{1000, 50}, {3000, 80}}), add(4, {{1000, 50}, {3000, 90}})};
  WaitingQueuePolicy policy(config(SchedulePolicy::kDfsWeight), radix_);
  policy.calc_priority(waiting);
  EXPECT_EQ(ids(waiting), (Ids{3, 4, 1, 0, 2}));
}

TEST_F(PolicyTest, LofPutsTheLongestOutputFirst) {
  std::vector<Req*> waiting = {add(0, {{1, 5}}, 10), add(1, {{1, 5}}, 30), add(2, {{1, 5}}, 10),
                               add(3, {{1, 5}}, 20)};
  WaitingQueuePolicy policy(config(SchedulePolicy::kLof), radix_);
  policy.calc_priority(waiting);
  EXPECT_EQ(ids(waiting), (Ids{1, 3, 0, 2}));
}

TEST_F(PolicyTest, RandomIsAPermutationThatTheSeedDecides) {
  std::vector<Req*> a;
  for (std::uint64_t i = 0; i < 50; ++i) a.push_back(add(i, {{1, 5}}));
  std::vector<Req*> b = a;
  std::vector<Req*> c = a;
  WaitingQueuePolicy(config(SchedulePolicy::kRandom, 1), radix_).calc_priority(a);
  WaitingQueuePolicy(config(SchedulePolicy::kRandom, 1), radix_).calc_priority(b);
  WaitingQueuePolicy(config(SchedulePolicy::kRandom, 2), radix_).calc_priority(c);
  EXPECT_EQ(ids(a), ids(b));
  EXPECT_NE(ids(a), ids(c));
  Ids sorted = ids(a);
  std::sort(sorted.begin(), sorted.end());
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(sorted[i], i);
}

}  // namespace
}  // namespace tpsim::scheduler
