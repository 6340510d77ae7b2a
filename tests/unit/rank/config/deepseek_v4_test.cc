// DeepSeek V4: what its config says, what its ranks keep and its pools hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "rank/catalogue/catalogue.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/draft_model.h"
#include "rank/llm/layers.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json flash() { return Json::parse(*catalogue::find("models", "deepseek-v4-flash")); }
std::string why_v4_is_refused(const Json& json) {
  return refusal([&] { parse_model_config(json.dump(), "config.json"); });
}

TEST(DeepseekV4, ThreeKindsOfLayers) {
  const ModelConfig model = load_model_config("deepseek-ai/DeepSeek-V4-Flash");
  EXPECT_TRUE(model.is_compressed());
  EXPECT_FALSE(model.is_sparse());
  EXPECT_EQ(model.moe.num_layers, 43U);
  ASSERT_EQ(model.attention.size(), 3U);
  for (const AttentionKind& kind : model.attention) {
    EXPECT_EQ(kind.sliding_window, 128U);
    EXPECT_EQ(kind.indexer, kind.compress_ratio == 4);
    EXPECT_EQ(kind.num_layers, kind.compress_ratio == 0 ? 2U : kind.compress_ratio == 4 ? 21U : 20U);
  }
  const ModelConfig pro = load_model_config("deepseek-ai/DeepSeek-V4-Pro");
  EXPECT_EQ(pro.attention.size(), 2U);
  EXPECT_EQ(pro.indexer.num_layers, 30U);
}

TEST(DeepseekV4, RefusesWhatSGLangHasNot) {
  Json json = flash();
  json["compress_ratios"][3] = 8;
  EXPECT_THAT(why_v4_is_refused(json), HasSubstr("compress_ratios"));
  json["compress_ratios"] = {4};
  EXPECT_THAT(why_v4_is_refused(json), HasSubstr("43"));
  json = flash();
  json["o_groups"] = 7;
  EXPECT_THAT(why_v4_is_refused(json), HasSubstr("o_groups"));
  json = flash();
  json["num_key_value_heads"] = 8;
  EXPECT_THAT(why_v4_is_refused(json), HasSubstr("num_key_value_heads"));
  const ModelConfig model = load_model_config("deepseek-v4-flash");
  EXPECT_THAT(refusal([&] { weight_list(model, make_shard(model, 16, 0)); }), HasSubstr("groups of heads"));
}

TEST(DeepseekV4, ExpertsAreFp4AndTheRestFp8) {
  const ModelConfig model = load_model_config("deepseek-v4-flash");
  const auto weights = weight_list(model, make_shard(model, 4, 1));
  EXPECT_EQ(weight_named(weights, "experts.gate_up_proj").format.kind, WeightFormat::Kind::kMxfp4);
  EXPECT_EQ(weight_named(weights, "wq_b").format.kind, WeightFormat::Kind::kFp8);
  EXPECT_EQ(weight_named(weights, "compressor4.wkv_gate").format.kind, WeightFormat::Kind::k16Bit);
  // Of 8 groups of 8 heads a rank of four has two; latents and the indexer are on every rank.
  EXPECT_EQ(weight_named(weights, "wo_a").n, 2U * 1024);
  EXPECT_EQ(weight_named(weights, "wo_a").k, 8U * 512);
  EXPECT_EQ(weight_named(weights, "wo_b").k, 2U * 1024);
  EXPECT_EQ(weight_named(weights, "wqkv_a").n, 1024U + 512);
  EXPECT_EQ(weight_named(weights, "indexer.wq_b").n, 64U * 128);
  // As published: 4.25 bits an expert's parameter.
  EXPECT_NEAR(static_cast<double>(weight_bytes(model, make_shard(model, 1, 0))), 156e9, 5e9);
}

// SGLang 0.5.23's bytes_per_full_token, less draft layers: 584 bytes a latent, 132 an index key.
TEST(DeepseekV4, PoolsAreSGLangs) {
  const ModelConfig model = load_model_config("deepseek-v4-flash");
  const Shard shard = make_shard(model, 4, 0);
  const double entries = 21 * (584.0 + 132) / 4 + 20 * 584.0 / 128;
  const double window = 43 * 584.0 + 21 * (8.0 / 256) * (4.0 * 4 * (512 + 128));
  EXPECT_EQ(window_bytes_per_token(model, shard, NumberFormat::kFp8E4M3), static_cast<std::uint64_t>(window));
  EXPECT_NEAR(static_cast<double>(kv_bytes_per_token(model, shard, NumberFormat::kFp8E4M3)), entries + window,
              2);
}

TEST(DeepseekV4, TheNextTokensLayerHasAWindowAlone) {
  const ModelConfig model = load_model_config("deepseek-v4-flash");
  const DraftModel draft = load_draft_model("EAGLE", "", model);
  ASSERT_EQ(draft.config.attention.size(), 1U);
  EXPECT_EQ(draft.config.attention[0].compress_ratio, 0U);
  EXPECT_EQ(draft.config.indexer.num_layers, 0U);
  EXPECT_EQ(draft.config.moe.num_layers, 1U);
}

TEST(DeepseekV4, HyperConnectionsAndProductsGrowWithTheirRows) {
  for (const char* const gpu : {"h200-sxm", "b200", "gb300", "mi300x"}) {
    const OperatorCosts costs(load_hardware(gpu));
    const WeightFormat fp8 = {WeightFormat::Kind::kFp8, 128, 128, false, ActivationFormat::kFp8};
    double last = 0, product = 0;
    for (double rows = 1; rows <= 65536; rows *= 2) {
      const double seconds = costs.hyper_connections(rows, 4096, 4).seconds;
      EXPECT_GE(seconds, last) << gpu << " " << rows;
      last = seconds;
      const double of_product = costs.compressed_product(rows, 4096, 4096, fp8).seconds;
      EXPECT_GE(of_product, product) << gpu << " " << rows;
      product = of_product;
    }
  }
}

}  // namespace
}  // namespace tpsim::rank
