// Experts over ranks, data-parallel attention, expert all-to-all: what a rank holds, sees and sends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/llm/communication.h"
#include "rank/llm/eplb.h"
#include "rank/llm/expert_load.h"
#include "rank/llm/layers.h"
#include "rank/llm/memory.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;

ParallelLayout layout_of(std::uint32_t tp, std::uint32_t dp, std::uint32_t ep) {
  ParallelLayout layout;
  layout.tp_size = tp;
  layout.dp_size = dp;
  layout.ep_size = ep;
  return layout;
}

std::uint64_t bytes_of(const ModelConfig& model, const ParallelLayout& layout, ModelPart part) {
  std::uint64_t sum = 0;
  for (std::uint32_t rank = 0; rank < layout.tp_size; ++rank) {
    for (const WeightSpec& weight : weight_list(model, make_shard(model, layout, rank))) {
      if (weight.part == part) sum += weight.k * weight.n * weight.copies();
    }
  }
  return sum;
}

TEST(ParallelLayout, EveryPartIsHeldAsOftenAsItIsReplicated) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  for (const std::uint32_t dp : {1U, 2U, 4U, 8U}) {
    for (const std::uint32_t ep : {1U, 2U, 4U, 8U}) {
      const ParallelLayout layout = layout_of(8, dp, ep);
      const ParallelLayout one = layout_of(1, 1, 1);
      EXPECT_EQ(bytes_of(model, layout, ModelPart::kExperts), bytes_of(model, one, ModelPart::kExperts));
      EXPECT_EQ(bytes_of(model, layout, ModelPart::kHead), bytes_of(model, one, ModelPart::kHead));
      // Query heads are held by each data-parallel rank; the four KV heads also where more ranks share them.
      std::uint64_t q = 0;
      for (std::uint32_t rank = 0; rank < 8; ++rank) q += make_shard(model, layout, rank).q_heads.count();
      EXPECT_EQ(q, std::uint64_t{dp} * model.num_attention_heads);
    }
  }
  ParallelLayout own_head = layout_of(8, 4, 8);
  own_head.dp_lm_head = true;
  EXPECT_EQ(bytes_of(model, own_head, ModelPart::kHead),
            4 * bytes_of(model, layout_of(1, 1, 1), ModelPart::kHead));
}

TEST(ParallelLayout, RanksOfAnExpertGroupHaveItsParts) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  const ParallelLayout layout = layout_of(8, 1, 4);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    const Shard shard = make_shard(model, layout, rank);
    EXPECT_EQ(shard.experts.rank, rank / 2);
    EXPECT_EQ(shard.expert_width.rank, rank % 2);
    const auto weights = weight_list(model, shard);
    EXPECT_EQ(weight_named(weights, "experts.down_proj").experts, 32U);
    EXPECT_EQ(weight_named(weights, "experts.down_proj").k, model.moe.intermediate_size / 2);
  }
}

TEST(ParallelLayout, RefusesWhatDoesNotDivide) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  EXPECT_THAT(refusal([&] { make_shard(model, layout_of(8, 3, 1), 0); }),
              HasSubstr("--dp-size 3: must divide --tp 8"));
  EXPECT_THAT(refusal([&] { make_shard(model, layout_of(8, 1, 3), 0); }),
              HasSubstr("--ep-size 3: must divide --tp 8"));
  EXPECT_THAT(refusal([&] { make_shard(model, layout_of(24, 1, 8), 0); }),
              HasSubstr("--tp 24 does not divide"));
  EXPECT_THAT(refusal([&] { make_shard(model, layout_of(24, 4, 8), 0); }),
              HasSubstr("--tp 24 with --dp-size 4 (attention over 6 ranks)"));
  ParallelLayout deepep = layout_of(8, 1, 8);
  deepep.moe_a2a = MoeA2aBackend::kDeepEp;
  EXPECT_THAT(refusal([&] { make_shard(load_model_config("qwen3-8b"), deepep, 0); }),
              HasSubstr("has no experts"));
}

attention::ForwardMetadata pass(const std::vector<std::uint32_t>& tokens, bool extends,
                                std::uint32_t bucket = 0) {
  attention::ForwardMetadata metadata;
  metadata.global_num_tokens = metadata.global_num_tokens_for_logprob = tokens;
  metadata.is_extend_in_batch = extends;
  metadata.capture_bucket = bucket;
  return metadata;
}

// SGLang's DpPaddingMode.get_dp_padding_mode and ForwardBatch.prepare_mlp_sync_batch.
TEST(PassRows, PaddedAsSglangPads) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  const Shard shard = make_shard(model, layout_of(8, 4, 8), 0);  // two ranks to a data-parallel rank
  const std::vector<std::uint32_t> tokens = {5, 0, 7, 2};
  PassRows rows = pass_rows(pass(tokens, true), shard, 5, 5, 0);
  EXPECT_FALSE(rows.max_len);  // some rank extends: the sum, each aligned to the two ranks
  EXPECT_EQ(rows.attention, 6U);
  EXPECT_EQ(rows.gathered, 6U + 0 + 8 + 2);
  EXPECT_EQ(rows.head, 14U);
  rows = pass_rows(pass(tokens, false), shard, 5, 5, 0);
  EXPECT_TRUE(rows.max_len);  // 2 x 16 >= 8 x 4
  EXPECT_EQ(rows.attention, 8U);
  EXPECT_EQ(rows.gathered, 32U);
  const std::vector<std::uint32_t> lone = {0, 0, 9, 0};
  EXPECT_FALSE(pass_rows(pass(lone, false), shard, 0, 0, 0).max_len);  // 2 x 10 < 10 x 4
  rows = pass_rows(pass(tokens, false, 8), shard, 5, 5, 8);
  EXPECT_EQ(rows.attention, 8U);
  EXPECT_EQ(rows.gathered, 32U);
  EXPECT_EQ(rows.sampled, 8U);
  EXPECT_EQ(rows.head, 32U);
}

TEST(Communication, WhatIsSentFollowsTheLayout) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  const OperatorCosts costs(profile);
  const double hidden = model.hidden_size * 2.0;
  const auto sent = [&](const ParallelLayout& layout, const attention::ForwardMetadata& metadata,
                        std::uint32_t tokens) {
    const Shard shard = make_shard(model, layout, 0);
    double bytes = 0;
    const proto::HostProfile::DataParallel host;
    const Communication communication(model, shard, costs, host);
    for (const auto& one : communication.layers(pass_rows(metadata, shard, tokens, tokens, 0)))
      bytes += one.sent * one.times;
    return bytes / model.num_layers;
  };
  const std::vector<std::uint32_t> equal(8, 4096);
  // All-gather before the experts and reduce-scatter behind them: each token once to each of the others.
  EXPECT_DOUBLE_EQ(sent(layout_of(8, 8, 8), pass(equal, false), 4096), 2 * 7 * 4096 * hidden);
  // With an extend among them, two all-reduces of everybody's tokens.
  EXPECT_DOUBLE_EQ(sent(layout_of(8, 8, 8), pass(equal, true), 4096), 2 * 2 * 8 * 4096 * hidden * 7 / 8);
  // DeepEP: a token to the ranks of its experts and back; nothing else with one rank to a data-parallel rank.
  ParallelLayout deepep = layout_of(8, 8, 8);
  deepep.moe_a2a = MoeA2aBackend::kDeepEp;
  const double wide = 4096.0 * 8 * 7 / 8;  // low latency: once to each of its 8 experts
  EXPECT_DOUBLE_EQ(sent(deepep, pass(equal, false), 4096),
                   wide * (model.hidden_size * (1 + 1 / 32.0) + hidden));
  EXPECT_LT(sent(deepep, pass(equal, true), 4096), sent(deepep, pass(equal, false), 4096));
}

TEST(ExpertLoad, UniformIsTheLimitOfNoSkew) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  const ExpertLoad flat("--expert-distribution", "zipf:0", model, 1);
  const ExpertLoad uniform("--expert-distribution", "uniform", model, 1);
  for (const std::uint32_t ep : {1U, 4U, 8U}) {
    const ExpertRows even = uniform.busiest(0, 100, model.moe, ep);
    const ExpertRows zipf = flat.busiest(0, 100, model.moe, ep);
    EXPECT_NEAR(zipf.rows, even.rows, 1e-6);
    EXPECT_NEAR(zipf.hit, even.hit, 0.1);
    EXPECT_NEAR(zipf.elsewhere, 800 - even.rows, 1e-6);
  }
  EXPECT_NEAR(flat.imbalance(model.moe, 8), 1, 1e-9);
}

// Visits to each expert by tokens that draw theirs, within the groups that they draw.
std::vector<std::uint32_t> drawn_visits(const MoeConfig& moe, std::uint32_t tokens, std::mt19937_64& random) {
  const auto draw = [&random](std::vector<std::uint32_t>& from, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) std::swap(from[i], from[i + random() % (from.size() - i)]);
    from.resize(count);
  };
  const std::uint32_t of_group = moe.num_experts / moe.num_groups;
  std::vector<std::uint32_t> visits(moe.num_experts);
  for (std::uint32_t token = 0; token < tokens; ++token) {
    std::vector<std::uint32_t> groups(moe.num_groups), experts;
    std::iota(groups.begin(), groups.end(), 0U);
    draw(groups, moe.topk_groups);
    for (const std::uint32_t group : groups)
      for (std::uint32_t i = 0; i < of_group; ++i) experts.push_back(group * of_group + i);
    draw(experts, moe.top_k);
    for (const std::uint32_t expert : experts) ++visits[expert];
  }
  return visits;
}

TEST(ExpertLoad, RanksWaitForTheOneThatHasMostByChance) {
  std::mt19937_64 random(7);
  for (const char* const name : {"qwen3-30b-a3b", "deepseek-v3"}) {
    const ModelConfig model = load_model_config(name);
    const MoeConfig& moe = model.moe;
    const ExpertLoad even("--expert-distribution", "uniform", model, 1);
    // A few tokens of a few groups are less like a normal distribution.
    const double rows_off = moe.num_groups > 1 ? 0.05 : 0.04, hit_off = moe.num_groups > 1 ? 0.07 : 0.06;
    for (const std::uint32_t ep : {2U, 4U, 8U}) {
      for (const std::uint32_t tokens : {4U, 16U, 64U, 512U}) {
        double most = 0, hit = 0;
        constexpr int kDraws = 400;
        for (int draw = 0; draw < kDraws; ++draw) {
          const std::vector<std::uint32_t> visits = drawn_visits(moe, tokens, random);
          double rows = 0, of_it = 0;
          for (std::uint32_t rank = 0; rank < ep; ++rank) {
            const auto begin = visits.begin() + rank * (moe.num_experts / ep);
            const auto end = begin + moe.num_experts / ep;
            const double sum = std::accumulate(begin, end, 0.0);
            if (sum <= rows) continue;
            rows = sum;
            of_it = double(std::count_if(begin, end, [](std::uint32_t n) { return n > 0; }));
          }
          most += rows / kDraws;
          hit += of_it / kDraws;
        }
        const ExpertRows busiest = even.busiest(0, tokens, moe, ep);
        EXPECT_NEAR(busiest.rows / most, 1, rows_off) << name << ep << " ranks, " << tokens << " tokens";
        EXPECT_NEAR(busiest.hit / hit, 1, hit_off) << name << ep << " ranks, " << tokens << " tokens";
      }
    }
    // One rank waits for nobody, and balanced experts leave nothing to wait for.
    EXPECT_FALSE(even.uneven(1));
    EXPECT_FALSE(ExpertLoad("--expert-distribution", "balanced", model, 1).uneven(8));
  }
}

// Placements of SGLang 0.5.23's eplb_algorithms/deepseek.py for these loads.
TEST(ExpertLoad, IsPlacedAsSglangsBalancerPlacesIt) {
  const std::vector<double> loads = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  using Ranks = std::vector<std::vector<std::uint32_t>>;
  const auto placed = [&](std::uint32_t redundant, std::uint32_t ep) {
    const std::vector<std::uint32_t> all = balanced_placement(loads, redundant, ep);
    const std::size_t count = all.size() / ep;
    Ranks ranks;
    for (std::size_t rank = 0; rank < ep; ++rank) {
      ranks.emplace_back(all.begin() + rank * count, all.begin() + (rank + 1) * count);
      std::sort(ranks.back().begin(), ranks.back().end());
    }
    return ranks;
  };
  EXPECT_EQ(placed(0, 4), (Ranks{{3, 7, 10}, {5, 6, 8}, {1, 2, 11}, {0, 4, 9}}));
  EXPECT_EQ(placed(4, 4), (Ranks{{3, 7, 8, 10}, {1, 1, 4, 10}, {0, 2, 4, 5}, {5, 6, 9, 11}}));
  EXPECT_EQ(placed(4, 2), (Ranks{{0, 1, 1, 4, 4, 5, 7, 10}, {2, 3, 5, 6, 8, 9, 10, 11}}));

  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  const ExpertLoad skewed("--expert-distribution", "power_law:1.2", model, 1);
  EXPECT_GT(skewed.imbalance(model.moe, 8), 1.3);
  ExpertLoad balanced = skewed, more = skewed, idle = skewed;
  balanced.place(model, &skewed, 0, 8);
  EXPECT_LT(balanced.imbalance(model.moe, 8), 1.05);
  more.place(model, &skewed, 16, 8);
  EXPECT_LT(more.imbalance(model.moe, 8), balanced.imbalance(model.moe, 8));
  EXPECT_NEAR(more.busiest(0, 100, model.moe, 1).rows, 800, 1e-6);
  // Copies that nobody sends tokens to leave what is there to fewer ranks.
  idle.place(model, nullptr, 16, 8);
  EXPECT_GT(idle.imbalance(model.moe, 8), skewed.imbalance(model.moe, 8));
}

TEST(ExpertLoad, SkewLoadsTheBusiestRankAndHitsFewerExperts) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");
  double last = 0;
  double hit = 1e9;
  for (const char* spec : {"zipf:0", "zipf:0.5", "zipf:1", "zipf:2"}) {
    const ExpertLoad load("--expert-distribution", spec, model, 1);
    EXPECT_EQ(load.num_layers(), model.moe.num_layers);
    const double imbalance = load.imbalance(model.moe, 8);
    EXPECT_GE(imbalance, last - 1e-9);
    EXPECT_LE(imbalance, 8);
    last = imbalance;
    // All experts of a single rank: nobody visits an expert twice.
    const ExpertRows all = load.busiest(0, 10, model.moe, 1);
    EXPECT_NEAR(all.rows, 10.0 * model.moe.top_k, 1e-9);
    EXPECT_LE(all.hit, hit + 1e-9);
    hit = all.hit;
  }
  EXPECT_GT(last, 1.3);
}

TEST(ExpertLoad, RecordedCountsAreTakenAsTheyAre) {
  ModelConfig model = load_model_config("qwen3-30b-a3b");
  const std::string path = ::testing::TempDir() + "/counts.json";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  std::string layer = "[";
  for (int e = 0; e < 128; ++e) layer += (e == 0 ? "" : ",") + std::string(e < 16 ? "3" : "1");
  layer += "]";
  std::string layers;
  for (std::uint32_t i = 0; i < model.num_layers; ++i) layers += (i == 0 ? "" : ",") + layer;
  write("{\"logical_count\": [[" + layers + "], [" + layers + "]]}");
  const ExpertLoad load("--expert-distribution", path, model, 1);
  // Sixteen experts of 3 among 128 - 16 of 1: the first of eight ranks has 48 of 160 visits.
  EXPECT_NEAR(load.imbalance(model.moe, 8), 48.0 / 160 * 8, 1e-9);

  const auto said = [&] { return refusal([&] { ExpertLoad("--expert-distribution", path, model, 1); }); };
  write("{\"logical_count\": [[1, 2]]}");
  EXPECT_THAT(said(), HasSubstr("must have 48 layers"));
  write("[1]");
  EXPECT_THAT(said(), HasSubstr("logical_count"));
  write("{\"logical_count\": [[" + layers + "], [" + layers.substr(0, layers.size() - 1) + ",\"x\"]]]}");
  EXPECT_THAT(said(), HasSubstr("must have 128 experts"));
  std::remove(path.c_str());
  EXPECT_THAT(said(), HasSubstr("no such file"));
  EXPECT_THAT(refusal([&] { ExpertLoad("--expert-distribution", "zipf:-1", model, 1); }),
              HasSubstr("from 0 to 10"));
}

}  // namespace
}  // namespace tpsim::rank
