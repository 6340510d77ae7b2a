#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launch/plan/answer.h"
#include "launch/plan/heads.h"
#include "launch/plan/ranking.h"
#include "launch/plan/search.h"
#include "launch/plan/space.h"
#include "launch/report/comparison.h"
#include "proto/base/error.h"
#include "rank/config/model_config.h"

namespace tpsim::launch::plan_test {
namespace {

struct Parsed {
  CLI::App app{"test", "plan"};
  FlagSet flags{app};
  ServerArgs args;

  explicit Parsed(std::vector<std::string> words) {
    words.insert(words.end(), {"--hardware", "h200-sxm", "--dataset-name", "random"});
    declare_server_flags(flags, args, /*compare=*/true);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    flags.read();
  }
};

std::uint32_t value_of(const FlagValues& layout, const std::string& flag) {
  const auto value = layout.find(flag);
  return value == layout.end() ? 1 : static_cast<std::uint32_t>(std::stoul(value->second));
}

TEST(PlanLayouts, ShareOutAllGpusEachInItsWay) {
  const Parsed parsed({"--model-path", "deepseek-v3"});
  for (const std::uint32_t gpus : {1u, 2u, 6u, 8u, 16u}) {
    const std::vector<FlagValues> layouts = plan_layouts(parsed.flags, gpus, /*experts=*/true);
    EXPECT_EQ(std::set<FlagValues>(layouts.begin(), layouts.end()).size(), layouts.size());
    for (const FlagValues& layout : layouts) {
      const std::uint32_t tp = value_of(layout, "--tp-size"), ep = value_of(layout, "--ep-size");
      EXPECT_EQ(tp * value_of(layout, "--pp-size") * value_of(layout, "--dp-size"), gpus);
      EXPECT_EQ(tp % value_of(layout, "--attn-dp-size"), 0u);
      EXPECT_TRUE(ep == 1 || ep == tp);
      EXPECT_EQ(layout.contains("--router-policy"), layout.contains("--dp-size"));
    }
  }
}

TEST(PlanLayouts, HoldToWhatTheUserSettled) {
  const auto layouts = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--model-path", "llama-3.1-8b"});
    return plan_layouts(Parsed(std::move(words)).flags, 8, /*experts=*/false);
  };
  for (const FlagValues& layout : layouts({"--tp-size", "2,8"}))
    EXPECT_THAT(value_of(layout, "--tp-size"), testing::AnyOf(2, 8));
  for (const FlagValues& layout : layouts({"--pp-size", "1"})) EXPECT_FALSE(layout.contains("--pp-size"));
  for (const FlagValues& layout : layouts({"--dp-size", "4"})) EXPECT_EQ(value_of(layout, "--tp-size"), 2u);
  for (const FlagValues& layout : layouts({"--router-policy", "round_robin"})) {
    EXPECT_TRUE(!layout.contains("--dp-size") || layout.at("--router-policy") == "round_robin");
  }
  EXPECT_TRUE(layouts({"--tp-size", "3"}).empty());
}

TEST(PlanSpace, IsTheProductAndLeavesTheArgumentsAsTheyWere) {
  Parsed parsed({"--model-path", "llama-3.1-8b", "--attention-backends", "fa3,triton",
                 "--chunked-prefill-size", "512", "--page-size", "1,16", "--attn-dp-size", "1"});
  const ServerArgs before = parsed.args;
  const PlanSpace space = plan_space(parsed.flags, parsed.args, {2});
  // tp 2, tp 1 x 2 replicas behind two routers, tp 1 x 2 stages; backends; page sizes, mixed chunks,
  // policies.
  EXPECT_EQ(space.settings.size(), 4u * 2 * 2 * 2 * 2);
  EXPECT_EQ(parsed.args.tp_size, before.tp_size);
  EXPECT_EQ(parsed.args.attention_backends.size(), 2u);
  std::set<std::map<std::string, std::string>> different;
  for (const Setting& setting : space.settings) {
    different.insert(setting.values);
    EXPECT_EQ(setting.args.chunked_prefill_size, 512);
    EXPECT_EQ(setting.args.parallel.replicas() > 1, setting.args.router.policy.has_value());
    EXPECT_EQ(std::to_string(setting.args.tp_size), setting.values.at("tp_size"));
    EXPECT_FALSE(setting.args.parallel.attn_dp_size);
  }
  EXPECT_EQ(different.size(), space.settings.size());
  const auto refused = [](std::vector<std::string> words) -> std::string {
    Parsed parsed(std::move(words));
    try {
      plan_space(parsed.flags, parsed.args, {8});
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({"--model-path", "llama-3.1-8b", "--tp-size", "3"}),
              testing::StartsWith("--gpus 8: cannot be shared out"));
}

TEST(PlanSpace, HasNoBackendThatTheReleaseDropped) {
  const auto backends = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--model-path", "qwen2.5-14b-1m"});
    Parsed parsed(words);
    return plan_space(parsed.flags, parsed.args, {2}).settings.front().args.attention_backends.front().name();
  };
  EXPECT_EQ(backends({"--sglang-version", "0.5.12"}), "dual_chunk_flash_attn");
  EXPECT_THROW(backends({}), UserError);
}

TEST(PlanHeads, AreTheModelsOwnLayerAndThoseOfTheCatalogue) {
  const auto heads = [](const std::string& model) {
    std::vector<std::string> out;
    for (const PlanHead& head : heads_for(rank::load_model_config(model)))
      out.push_back(head.algorithm + " " + head.path);
    return out;
  };
  for (const char* model : {"deepseek-v3", "glm-4.5", "qwen3-next-80b-a3b"})
    EXPECT_THAT(heads(model), testing::ElementsAre("NEXTN "));
  EXPECT_THAT(heads("deepseek-v4-flash"),
              testing::ElementsAre("EAGLE "));  // SGLang's check knows no other name
  EXPECT_THAT(heads("llama-3.1-8b"), testing::ElementsAre(testing::StartsWith("EAGLE3 lmsys/")));
  EXPECT_TRUE(heads("phi-4").empty());
}

TEST(PlanHeads, DraftInAsManyWaysAsAreDocumentedWhereTheyCan) {
  Parsed parsed({"--model-path", "deepseek-v3", "--attention-backends", "fa3,torch_native",
                 "--chunked-prefill-size", "512", "--schedule-policy", "fcfs", "--enable-mixed-chunk=false",
                 "--tp-size", "8", "--ep-size", "1"});
  PlanSpace space = plan_space(parsed.flags, parsed.args, {8});
  const std::size_t before = space.settings.size();
  EXPECT_TRUE(add_with_head(space, 0, {"NEXTN", "", false}));
  ASSERT_EQ(space.settings.size(), before + 4);
  EXPECT_FALSE(speculates(space.settings[0]));
  for (std::size_t i = before; i < space.settings.size(); ++i) {
    const Setting& setting = space.settings[i];
    EXPECT_TRUE(speculates(setting));
    EXPECT_NEAR(assumed_acceptance(setting)->rate, 0.8, 0.1);
    EXPECT_EQ(setting.args.given.at("--speculative-algorithm"), "NEXTN");
    EXPECT_EQ(setting.args.given.contains("--speculative-num-steps"), i > before);
    EXPECT_EQ(space.layouts[i], space.layouts[0] + " --speculative-algorithm NEXTN");
  }
  // What cannot draft is one setting that is refused.
  const auto cannot = std::ranges::find_if(space.settings, [](const Setting& setting) {
    return setting.values.at("attention_backends") == "torch_native";
  });
  ASSERT_NE(cannot, space.settings.end());
  EXPECT_FALSE(
      add_with_head(space, static_cast<std::size_t>(cannot - space.settings.begin()), {"NEXTN", "", false}));
  EXPECT_EQ(space.settings.size(), before + 5);
}

proto::RunReport& add_run(proto::ComparisonReport& report, const std::string& chunk, double goodput,
                          double share, double latency) {
  proto::RunReport& run = *report.add_runs();
  run.set_backend("fa3");
  run.set_tp_size(8);
  run.set_completed(10);
  run.set_total_throughput(1000);
  run.set_request_goodput(goodput);
  run.set_goodput_share(share);
  run.set_mean_e2e_latency_ms(latency);
  (*run.mutable_settings())["tp_size"] = "8";
  if (!chunk.empty()) (*run.mutable_settings())["chunked_prefill_size"] = chunk;
  return run;
}

TEST(PlanAnswer, RanksThoseThatHoldBeforeOthers) {
  proto::ComparisonReport report;
  add_run(report, "", 10, 0.98, 10);
  add_run(report, "1", 9, 0.995, 50);
  add_run(report, "2", 8, 0.99, 10);
  add_run(report, "3", 11, 0.5, 10);
  report.mutable_runs(3)->set_stopped_early(true);
  EXPECT_THAT(rank_runs(report, 0.99, 9), testing::ElementsAre(1, 2, 0));
  EXPECT_THAT(rank_runs(report, 0.99, 1), testing::ElementsAre(1));
  EXPECT_THAT(rank_runs(report, 0.4, 9), testing::ElementsAre(0, 1, 2));
}

TEST(PlanAnswer, OfATieTheSimplerIsProposed) {
  proto::ComparisonReport report;
  report.mutable_sweep()->add_axes()->set_flag("tp_size");
  report.mutable_sweep()->add_axes()->set_flag("chunked_prefill_size");
  add_run(report, "4096", 10, 1, 10);
  add_run(report, "", 10, 1, 10.2);
  PlanSpace space;
  space.layouts = {"a", "a"};
  choose_best(report);
  EXPECT_THAT(answer_plan({}, space, {0, 1}, report).order, testing::ElementsAre(0, 1));
  proto::Tie& tie = *report.add_ties();
  tie.set_backend("fa3");
  *tie.mutable_settings() = report.runs(1).settings();
  tie.set_difference(0.02);
  const PlanAnswer answer = answer_plan({}, space, {0, 1}, report);
  EXPECT_THAT(answer.order, testing::ElementsAre(1, 0));
  EXPECT_THAT(answer.shown, testing::ElementsAre(1)) << "one of a layout";
  tie.set_difference(0.05);  // told apart or not: it would cost too much
  EXPECT_THAT(answer_plan({}, space, {0, 1}, report).order, testing::ElementsAre(0, 1));
}

TEST(PlanAnswer, SaysWhatBoundsARun) {
  proto::RunReport run;
  proto::PassSeconds& decode = *run.add_ranks()->mutable_decode();
  decode.set_gemm(6);
  decode.set_attention(4);
  run.set_gpu_busy_fraction(0.9);
  EXPECT_EQ(bound_of(run), "matrix products of decode: 60 % of the GPUs' busy time");
  run.add_calibration()->set_operator_class("moe");
  run.set_peak_kv_usage(0.99);
  run.set_retractions(7);
  run.set_gpu_busy_fraction(0.25);
  EXPECT_EQ(
      bound_of(run),
      "matrix products and experts of decode: 60 % of the GPUs' busy time; the KV pool is full at times (7 "
      "retractions); GPUs are idle 75 % of the time");
  run.set_tp_size(8);
  run.set_total_throughput(10000);
  EXPECT_NEAR(cost_per_million_tokens(run, 3.6), 8 * 3.6 / 36, 1e-12);
}

}  // namespace
}  // namespace tpsim::launch::plan_test
