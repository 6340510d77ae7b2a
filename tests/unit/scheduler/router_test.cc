// Routers alone: the policies' rules by hand, and the tree of prompts against a list of all of them.
#include "scheduler/router/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/router/prompt_tree.h"

namespace tpsim::scheduler {
namespace {

using kvcache::TokenSequence;

class FakeReplicas : public RoutedReplicas {
 public:
  explicit FakeReplicas(std::vector<std::uint64_t> in_flight)
      : sent(std::move(in_flight)), of_sessions(sent.size()), loads(sent.size()) {}
  std::span<const std::uint64_t> in_flight() const override { return sent; }
  std::uint64_t sessions(std::size_t replica) const override { return of_sessions[replica]; }
  Load load(std::size_t replica) const override { return loads[replica]; }
  std::span<const std::uint32_t> available() const override { return alive; }
  std::vector<std::uint64_t> sent, of_sessions;
  std::vector<Load> loads;
  std::vector<std::uint32_t> alive;  // empty: all
};

WorkloadRequest prompt_of(std::vector<kvcache::TokenRun> runs) {
  WorkloadRequest request;
  request.prompt = TokenSequence(runs);
  return request;
}

std::unique_ptr<Router> router_of(RouterPolicy policy, std::size_t replicas) {
  RouterConfig config;
  config.policy = policy;
  return make_router(config, replicas);
}

// Tokens that two sequences begin with alike, one by one.
std::uint64_t common(const TokenSequence& a, const TokenSequence& b) {
  const auto ids = [](const TokenSequence& sequence) {
    std::vector<kvcache::TokenId> all;
    for (const kvcache::TokenRun& run : sequence.runs())
      for (std::uint32_t i = 0; i < run.length; ++i) all.push_back(run.first + i);
    return all;
  };
  const auto x = ids(a), y = ids(b);
  return static_cast<std::uint64_t>(std::ranges::mismatch(x, y).in1 - x.begin());
}

// Behind one router each model's policy does what it does before that model's replicas alone, but for the
// count of round_robin.
TEST(ModelRouters, AreRoutersOfTheirOwn) {
  RouterConfig config;
  config.models = {{0, 2, 5}, {1, 3, 4}};
  for (const RouterPolicy policy :
       {RouterPolicy::kCacheAware, RouterPolicy::kPowerOfTwo, RouterPolicy::kRandom}) {
    config.policy = policy;
    const std::unique_ptr<Router> both = make_router(config, 6);
    std::vector<std::unique_ptr<Router>> alone;
    for (std::size_t model = 0; model < 2; ++model) {
      RouterConfig of_one = config;
      of_one.models.clear();
      of_one.seed += model;
      alone.push_back(make_router(of_one, 3));
    }
    std::mt19937_64 random(3);
    FakeReplicas all(std::vector<std::uint64_t>(6));
    EXPECT_EQ(both->never_looks(), alone[0]->never_looks());
    for (int i = 0; i < 300; ++i) {
      for (std::size_t replica = 0; replica < 6; ++replica) {
        all.sent[replica] = random() % 200;
        all.loads[replica].tokens = random() % 1000;
      }
      if (i == 200) all.alive = {1, 2, 3, 5};
      WorkloadRequest request = prompt_of({{random() % 8 * 100, 50}});
      request.model = static_cast<std::uint16_t>(1 + random() % 2);
      const std::vector<std::uint32_t>& replicas = config.models[request.model - 1U];
      FakeReplicas some(std::vector<std::uint64_t>(3));
      for (std::uint32_t replica = 0; replica < 3; ++replica) {
        some.sent[replica] = all.sent[replicas[replica]];
        some.loads[replica] = all.loads[replicas[replica]];
        if (std::ranges::count(all.alive, replicas[replica]) > 0) some.alive.push_back(replica);
      }
      Router& one = *alone[request.model - 1U];
      ASSERT_EQ(both->looks(request, i, all.sent), one.looks(request, i, some.sent));
      ASSERT_EQ(both->choose(request, i, all), replicas[one.choose(request, i, some)]);
    }
    WorkloadRequest second;
    second.model = 2;
    EXPECT_FALSE(both->serves(second, std::vector<std::uint32_t>{0, 2, 5}));
    EXPECT_TRUE(both->serves(second, std::vector<std::uint32_t>{0, 4}));
  }
}

// As sglang_router 0.3.2 did: models in turn reach one replica each, one model both of its own.
TEST(ModelRouters, RoundRobinCountsRequestsOfAllModels) {
  RouterConfig config;
  config.policy = RouterPolicy::kRoundRobin;
  config.models = {{0, 1}, {2, 3}};
  const std::unique_ptr<Router> router = make_router(config, 4);
  const FakeReplicas replicas(std::vector<std::uint64_t>(4));
  std::vector<std::size_t> chosen;
  for (const std::uint16_t model : {1, 2, 1, 2, 1, 1, 2, 2}) {
    WorkloadRequest request;
    request.model = model;
    chosen.push_back(router->choose(request, 0, replicas));
  }
  EXPECT_EQ(chosen, (std::vector<std::size_t>{0, 3, 0, 3, 0, 1, 2, 3}));
}

TEST(PromptTree, FindsWhatAListOfAllPromptsFinds) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    PromptTree tree(3);
    std::vector<std::pair<TokenSequence, std::size_t>> all;
    for (int i = 0; i < 60; ++i) {
      TokenSequence prompt;
      if (!all.empty() && random() % 3 != 0) {
        prompt = all[random() % all.size()].first;
        prompt.truncate(random() % (prompt.size() + 1));
      }
      const kvcache::TokenId first = random() % 5 * 10;
      prompt.append({first, static_cast<std::uint32_t>(1 + random() % 12)});
      std::uint64_t longest = 0;
      for (const auto& [other, replica] : all) longest = std::max(longest, common(prompt, other));
      const PromptTree::Match match = tree.match(prompt);
      ASSERT_EQ(match.tokens, longest);
      const bool seen_there = std::ranges::any_of(all, [&](const auto& other) {
        return other.second == match.replica && common(prompt, other.first) == longest;
      });
      ASSERT_TRUE(longest == 0 || seen_there);
      const std::size_t replica = random() % 3;
      tree.insert(prompt, replica);
      all.emplace_back(prompt, replica);
    }
  }
}

TEST(PromptTree, ForgetsWhatWasSeenLongestAgo) {
  PromptTree tree(2);
  const TokenSequence old(std::vector<kvcache::TokenRun>{{0, 100}, {1000, 50}});
  const TokenSequence young(std::vector<kvcache::TokenRun>{{0, 100}, {2000, 50}});
  tree.insert(old, 0);
  tree.insert(young, 0);
  tree.insert(old, 1);
  EXPECT_EQ(tree.size(0), 200U);
  EXPECT_EQ(tree.size(1), 150U);
  tree.evict(150);
  EXPECT_EQ(tree.size(0), 150U);
  EXPECT_EQ(tree.match(young).tokens, 150U);
  EXPECT_EQ(tree.match(old).replica, 1U);  // which still has it
  tree.evict(0);
  EXPECT_EQ(tree.size(0) + tree.size(1), 0U);
  EXPECT_EQ(tree.match(old).tokens, 0U);
}

TEST(PromptTree, SizesAreThoseOfRandomInsertionsAndEvictions) {
  std::mt19937_64 random(11);
  PromptTree tree(4);
  for (int i = 0; i < 2000; ++i) {
    TokenSequence prompt;
    for (std::uint64_t run = 0; run <= random() % 4; ++run)
      prompt.append({random() % 6 * 100, static_cast<std::uint32_t>(1 + random() % 60)});
    tree.insert(prompt, random() % 4);
    if (i % 50 != 49) continue;
    const std::uint64_t most = random() % 2000;
    tree.evict(most);
    for (std::size_t replica = 0; replica < 4; ++replica) ASSERT_LE(tree.size(replica), most);
  }
  tree.evict(0);
  for (std::size_t replica = 0; replica < 4; ++replica) EXPECT_EQ(tree.size(replica), 0U);
}

TEST(Router, RoundRobinTakesTurns) {
  const auto router = router_of(RouterPolicy::kRoundRobin, 3);
  const FakeReplicas replicas({9, 0, 0});
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(router->choose(prompt_of({{0, 1}}), 0, replicas), i % 3);
}

TEST(Router, RandomIsEvenAndTheSameForASeed) {
  const FakeReplicas replicas({0, 0, 0, 0});
  std::vector<int> counts(4);
  const auto router = router_of(RouterPolicy::kRandom, 4), again = router_of(RouterPolicy::kRandom, 4);
  for (int i = 0; i < 4000; ++i) {
    const std::size_t chosen = router->choose(prompt_of({{0, 1}}), 0, replicas);
    ++counts[chosen];
    ASSERT_EQ(again->choose(prompt_of({{0, 1}}), 0, replicas), chosen);
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 100);
}

// The figures that it compares are those of its last poll, every 30 s.
TEST(Router, PowerOfTwoFollowsOldFigures) {
  const auto router = router_of(RouterPolicy::kPowerOfTwo, 2);
  FakeReplicas replicas({0, 0});
  replicas.loads = {{1, 100}, {1, 50}};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(router->choose(prompt_of({{0, 1}}), 0.5 * i, replicas), 1U);
  replicas.loads = {{1, 100}, {200, 9000}};
  EXPECT_EQ(router->choose(prompt_of({{0, 1}}), 29.9, replicas), 1U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(router->choose(prompt_of({{0, 1}}), 30 + i, replicas), 0U);
}

TEST(Router, CacheAwareFollowsPromptsUntilLoadsDiffer) {
  const auto router = router_of(RouterPolicy::kCacheAware, 2);
  FakeReplicas replicas({1, 0});
  EXPECT_EQ(router->choose(prompt_of({{0, 100}}), 0, replicas), 1U);  // the least busy one
  replicas.sent = {0, 1};
  EXPECT_EQ(router->choose(prompt_of({{0, 100}, {5000, 100}}), 1, replicas), 1U);  // half of it was there
  EXPECT_EQ(router->choose(prompt_of({{0, 30}, {7000, 70}}), 1, replicas), 0U);    // 0.3 is not more than 0.3
  replicas.sent = {1, 66};                                                         // 65 apart
  EXPECT_EQ(router->choose(prompt_of({{0, 100}, {5000, 100}}), 1, replicas), 0U);
  replicas.sent = {200, 265};                                                     // not 1.5 times
  EXPECT_EQ(router->choose(prompt_of({{0, 100}, {5000, 90}}), 1, replicas), 0U);  // which saw it last
}

// sglang_router's manual: a session stays, moves where its replica is gone, and comes back to the older of
// its two; idle ones are forgotten; requests of no session are drawn.
TEST(Router, ManualKeepsSessionsWhereTheyWere) {
  RouterConfig config;
  config.policy = RouterPolicy::kManual;
  config.assignment_mode = AssignmentMode::kMinLoad;
  config.max_idle = 100;
  const std::unique_ptr<Router> router = make_router(config, 3);
  const auto of_session = [](std::uint32_t session) {
    WorkloadRequest request = prompt_of({{1, 8}});
    request.session = session;
    return request;
  };
  FakeReplicas replicas({5, 2, 9});
  EXPECT_TRUE(router->looks(of_session(1), 0, replicas.sent));
  EXPECT_EQ(router->choose(of_session(1), 0, replicas), 1U);
  EXPECT_FALSE(router->looks(of_session(1), 0, replicas.sent));
  replicas.sent = {0, 7, 1};
  EXPECT_EQ(router->choose(of_session(1), 1, replicas), 1U);
  EXPECT_EQ(router->choose(of_session(2), 1, replicas), 0U);
  replicas.alive = {0, 2};  // its replica dies: another, beside which it is remembered
  replicas.sent = {4, 7, 1};
  EXPECT_EQ(router->choose(of_session(1), 2, replicas), 2U);
  replicas.alive = {};
  EXPECT_EQ(router->choose(of_session(1), 3, replicas), 1U);
  replicas.sent = {0, 9, 9};
  EXPECT_EQ(router->choose(of_session(1), 59, replicas), 1U);
  EXPECT_EQ(router->choose(of_session(1), 158, replicas), 1U);  // the eviction at 120 s found it idle for 61
  EXPECT_TRUE(router->looks(of_session(1), 301, replicas.sent));  // that at 300 s found it idle for 142
  EXPECT_EQ(router->choose(of_session(1), 301, replicas), 0U);
  config.assignment_mode = AssignmentMode::kMinGroup;  // one session of many requests counts as one
  const std::unique_ptr<Router> by_sessions = make_router(config, 3);
  replicas.sent = {1, 9, 2};
  replicas.of_sessions = {1, 0, 2};
  EXPECT_TRUE(by_sessions->looks(of_session(1), 0, replicas.sent));
  EXPECT_EQ(by_sessions->choose(of_session(1), 0, replicas), 1U);
  std::vector<int> drawn(3);
  for (int i = 0; i < 300; ++i) ++drawn[router->choose(of_session(0), 301, replicas)];
  EXPECT_GT(*std::ranges::min_element(drawn), 60);
}

// Prompts in bursts 3.1 s apart and where sglang_router 0.3.2 sent them, with three prefill workers, bounds
// that are looked at every 2 s, and thresholds under which it goes by length alone, or by both. Ties are
// drawn there: of 1,736 and 2,154 characters, when two workers had none, it was the other way round.
TEST(Router, BucketSendsPromptsAsTheRealOne) {
  struct Burst {
    std::vector<std::pair<std::uint32_t, std::size_t>> sent;  // characters, worker by its bucket
  };
  const auto check = [](std::uint32_t abs_threshold, double rel_threshold, const std::vector<Burst>& bursts) {
    RouterConfig config;
    config.policy = RouterPolicy::kBucket;
    config.balance_abs_threshold = abs_threshold;
    config.balance_rel_threshold = rel_threshold;
    config.bucket_adjust_interval = 2;
    config.characters_per_token = 1;
    const std::unique_ptr<Router> router = make_router(config, 3);
    const FakeReplicas replicas({0, 0, 0});
    double now = 0.1;
    for (const Burst& burst : bursts) {
      for (const auto& [characters, worker] : burst.sent)
        EXPECT_EQ(router->choose(prompt_of({{0, characters}}), now, replicas), worker)
            << now << ", " << characters;
      now += 3.1;
    }
  };
  check(100'000'000, 1.5,
        {{{{292, 0}, {33, 0}, {131, 0}, {61, 0}, {254, 0}, {231, 0}, {242, 0}, {195, 0}}},
         {{{49, 0}, {250, 1}, {15, 0}, {200, 0}, {222, 0}, {2, 0}, {229, 0}, {137, 0}}},
         {{{7497, 2}, {19371, 2}, {3350, 2}, {10402, 2}, {1003, 2}, {732, 2}, {834, 2}, {17742, 2}}},
         {{{196, 0}, {111, 0}, {217, 0}, {15, 0}, {271, 0}, {114, 0}, {225, 0}, {254, 0}}},
         {{{7638, 2}, {11328, 2}, {7566, 2}, {7170, 2}, {15061, 2}, {9496, 2}, {705, 2}, {13638, 2}}},
         {{{3277, 0}, {6092, 0}, {9713, 1}, {3962, 0}, {10902, 1}, {16411, 2}, {13832, 2}, {16637, 2}}}});
  check(5000, 2,
        {{{{47, 0}, {44, 0}, {185, 0}, {87, 0}, {158, 0}, {129, 0}, {109, 0}, {19, 0}}},
         {{{5190, 2}, {14113, 0}, {12896, 1}, {16682, 2}, {12192, 2}, {17832, 1}, {14577, 0}, {16452, 2}}},
         {{{148, 0}, {113, 0}, {1492, 0}, {1905, 0}, {1305, 0}, {1557, 0}, {1736, 1}, {2154, 2}}},
         {{{287, 0}, {91, 0}, {121, 0}, {119, 0}, {13, 0}, {91, 0}, {167, 0}, {89, 0}}},
         {{{262, 1}, {262, 1}, {185, 1}, {264, 1}, {287, 1}, {94, 0}, {229, 1}, {213, 1}}},
         {{{17216, 2}, {11936, 0}, {19448, 1}, {11593, 2}, {11859, 0}, {14607, 2}, {5282, 1}, {13103, 2}}}});
}

TEST(Router, TheControllerFindsTheLeastLoaded) {
  FakeReplicas replicas({0, 0, 0});
  replicas.loads = {{5, 10}, {2, 90}, {7, 10}};
  EXPECT_EQ(router_of(RouterPolicy::kTotalRequests, 3)->choose(prompt_of({{0, 1}}), 0, replicas), 1U);
  EXPECT_EQ(router_of(RouterPolicy::kTotalTokens, 3)->choose(prompt_of({{0, 1}}), 0, replicas), 0U);
}

}  // namespace
}  // namespace tpsim::scheduler
