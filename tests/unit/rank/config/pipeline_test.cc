// Pipeline stages: which layers, weights, memory and prices each has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attention/selection/registry.h"
#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/llm/layers.h"
#include "rank/llm/memory.h"
#include "rank/llm/modeled_forward.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;

// What get_pp_indices of SGLang 0.5.23 (distributed/utils.py) answers for every stage.
TEST(Pipeline, SharesLayersOutAsSglangDoes) {
  const struct {
    std::uint32_t layers, stages;
    std::vector<LayerRange> expected;
  } kTable[] = {
      {32, 2, {{0, 16}, {16, 16}}},
      {61, 4, {{0, 15}, {15, 15}, {30, 15}, {45, 16}}},
      {61, 8, {{0, 7}, {7, 7}, {14, 7}, {21, 8}, {29, 8}, {37, 8}, {45, 8}, {53, 8}}},
      {94, 4, {{0, 23}, {23, 23}, {46, 24}, {70, 24}}},
      {80, 3, {{0, 26}, {26, 27}, {53, 27}}},
      {28, 5, {{0, 5}, {5, 5}, {10, 6}, {16, 6}, {22, 6}}},
      {36, 7, {{0, 5}, {5, 5}, {10, 5}, {15, 5}, {20, 5}, {25, 5}, {30, 6}}},
      {5, 5, {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}},
      {7, 1, {{0, 7}}},
  };
  for (const auto& row : kTable) EXPECT_EQ(pipeline_layers(row.layers, row.stages, ""), row.expected);
  EXPECT_EQ(pipeline_layers(36, 3, "10,14,12"), (std::vector<LayerRange>{{0, 10}, {10, 14}, {24, 12}}));
  EXPECT_EQ(pipeline_layers(36, 1, "10,14,12"), (std::vector<LayerRange>{{0, 36}}));
  EXPECT_THAT(refusal([] { pipeline_layers(36, 2, "10,14,12"); }),
              HasSubstr("names 3 stages, --pp-size is 2"));
  EXPECT_THAT(refusal([] { pipeline_layers(36, 3, "10,14,13"); }), HasSubstr("adds up to 37 layers"));
  EXPECT_THAT(refusal([] { pipeline_layers(36, 2, "36,x"); }), HasSubstr("SGLANG_PP_LAYER_PARTITION"));
  EXPECT_THAT(refusal([] { pipeline_layers(36, 37, ""); }), HasSubstr("--pp-size 37"));
}

ParallelLayout tp(std::uint32_t size) {
  ParallelLayout layout;
  layout.tp_size = size;
  return layout;
}

std::uint64_t elements(const std::vector<WeightSpec>& weights, bool head) {
  std::uint64_t sum = 0;
  for (const WeightSpec& weight : weights) {
    if ((weight.part == ModelPart::kHead) == head)
      sum += (weight.k * weight.n + weight.bias) * weight.copies();
  }
  return sum;
}

TEST(Pipeline, StagesTogetherHoldTheModelOnce) {
  for (const char* name : {"qwen3-8b", "llama-3.1-70b", "gpt-oss-120b", "deepseek-v3", "deepseek-v3.2",
                           "glm-4.5-air", "qwen3-30b-a3b"}) {
    const ModelConfig model = load_model_config(name);
    const std::vector<WeightSpec> whole = weight_list(model, make_shard(model, tp(4), 1));
    for (const std::uint32_t size : {2U, 3U, 8U}) {
      SCOPED_TRACE(std::string(name) + " in " + std::to_string(size));
      std::uint64_t sum = 0, heads = 0, kv = 0, moe = 0;
      std::uint32_t with_head = 0, stage_rank = 0;
      for (const LayerRange& layers : pipeline_layers(model.num_layers, size, "")) {
        const ModelConfig stage = stage_model(model, layers);
        const Shard shard = stage_shard(stage, tp(4), 1, stage_rank++, size);
        const std::vector<WeightSpec> weights = weight_list(stage, shard);
        sum += elements(weights, false);
        heads += elements(weights, true);
        with_head += elements(weights, true) > 0 ? 1 : 0;
        kv += kv_bytes_per_token(stage, shard, NumberFormat::kBf16);
        moe += stage.moe.num_layers;
        ASSERT_EQ(stage.layers.size(), stage.num_layers);
        std::uint32_t attended = 0;
        for (const AttentionKind& kind : stage.attention) attended += kind.num_layers;
        EXPECT_EQ(attended, stage.num_layers);
      }
      EXPECT_EQ(sum, elements(whole, false));
      EXPECT_EQ(heads, with_head * elements(whole, true));
      EXPECT_EQ(kv, kv_bytes_per_token(model, make_shard(model, tp(4), 1), NumberFormat::kBf16));
      EXPECT_EQ(moe, model.moe.num_layers);
      // models/qwen3.py and deepseek_v2.py make a head on the last stage only, the others here on all.
      const bool last_only =
          model.architecture == "Qwen3ForCausalLM" || model.architecture.starts_with("Deepseek");
      EXPECT_EQ(with_head, last_only ? 1 : size);
    }
  }
}

// Qwen3-0.6B ties its head: with stages the last one has a head of its own (models/qwen3.py).
TEST(Pipeline, ATiedHeadIsAWeightOfTheLastStage) {
  ModelConfig model = load_model_config("qwen3-8b");
  model.tie_word_embeddings = true;
  const ModelConfig last = stage_model(model, {18, 18});
  const std::vector<WeightSpec> weights = weight_list(last, stage_shard(last, tp(1), 0, 1, 2));
  EXPECT_FALSE(weight_named(weights, "lm_head").tied);
  const std::vector<WeightSpec> whole = weight_list(model, make_shard(model, tp(1), 0));
  EXPECT_TRUE(weight_named(whole, "lm_head").tied);
}

TEST(Pipeline, RefusesModelsWithoutStages) {
  EXPECT_EQ(refusal([] { check_pipeline(load_model_config("deepseek-v3")); }), "");
  EXPECT_THAT(refusal([] { check_pipeline(load_model_config("gemma-3-27b")); }),
              HasSubstr("has no pipeline stages"));
  EXPECT_THAT(refusal([] { check_pipeline(load_model_config("llama-4-scout")); }),
              HasSubstr("has no pipeline stages"));
  EXPECT_THAT(refusal([] { check_pipeline(load_model_config("qwen3.5-397b-a17b")); }),
              HasSubstr("gated delta-net"));
  ModelConfig tied = load_model_config("llama-3.1-8b");
  tied.tie_word_embeddings = true;
  EXPECT_THAT(refusal([&] { check_pipeline(tied); }), HasSubstr("ties its head"));
}

StepCost price(const ModelConfig& model, const Shard& shard, const attention::ForwardMetadata& batch) {
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  ModeledForward forward(model, hardware, shard, attention::create_attention_backend("fa3", hardware, 1),
                         ModeledForward::Options{.cuda_graph_bs = {64}});
  return forward.forward(batch);
}

// What a stage computes adds up to what the whole model computes; what it hands over is told apart.
TEST(Pipeline, StagesTogetherCostWhatTheModelDoes) {
  const ModelConfig model = load_model_config("llama-3.1-70b");
  const std::vector<std::uint32_t> lengths(64, 1000);
  attention::ForwardMetadata decode;
  decode.forward_mode = proto::DECODE;
  decode.decode_seq_lens = lengths;
  decode.capture_bucket = 64;
  attention::ForwardMetadata extend;
  const std::vector<std::uint32_t> none = {0}, chunk = {8192};
  extend.forward_mode = proto::EXTEND;
  extend.extend_prefix_lens = none;
  extend.extend_lens = chunk;
  for (const attention::ForwardMetadata& batch : {decode, extend}) {
    const StepCost whole = price(model, make_shard(model, tp(4), 0), batch);
    EXPECT_EQ(whole.send, 0);
    StepCost sum;
    std::uint32_t rank = 0;
    for (const LayerRange& layers : pipeline_layers(model.num_layers, 3, "")) {
      const ModelConfig stage = stage_model(model, layers);
      const StepCost cost = price(stage, stage_shard(stage, tp(4), 0, rank, 3), batch);
      for (const auto part : {&StepCost::attention, &StepCost::gemm, &StepCost::collective, &StepCost::other,
                              &StepCost::flops, &StepCost::memory_bytes})
        sum.*part += cost.*part;
      EXPECT_EQ(cost.receive > 0, rank > 0);
      EXPECT_GT(cost.send, 0);
      // 2 tensors of 8,192 elements of 2 bytes for each token, a quarter from each rank; 50 to 450 GB/s.
      const double tokens = batch.forward_mode == proto::DECODE ? 64 : 8192;
      const double bytes = tokens * 8192 * 2 * 2 / 4;
      if (rank < 2) {
        EXPECT_GT(cost.send, bytes / 450e9);
        EXPECT_LT(cost.send, bytes / 50e9 + 1e-4);
      }
      ++rank;
    }
    EXPECT_NEAR(sum.gemm, whole.gemm, 1e-9);
    EXPECT_NEAR(sum.collective, whole.collective, 1e-9);
    EXPECT_NEAR(sum.other, whole.other, 1e-9);
    EXPECT_NEAR(sum.flops, whole.flops, whole.flops * 1e-12);
    // Each stage plans its own pass.
    EXPECT_NEAR(sum.attention, whole.attention, 3 * 20e-6);
  }
}

}  // namespace
}  // namespace tpsim::rank
