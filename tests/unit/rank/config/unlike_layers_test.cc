// Families whose layers differ in their heads, or have something else in place of attention: gemma 4,
// Step 3.5, LFM2 and Kimi Linear.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "rank/catalogue/catalogue.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/layers.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json config_of(const std::string& name) { return Json::parse(*catalogue::find("models", name)); }
std::string refused(const Json& json) {
  return refusal([&] { parse_model_config(json.dump(), "config.json"); });
}
std::uint64_t kv_bytes(const std::string& name, std::uint32_t tp = 1) {
  const ModelConfig model = load_model_config(name);
  return kv_bytes_per_token(model, make_shard(model, tp, 0), NumberFormat::kBf16);
}

TEST(Gemma4, WideLayersHaveFewerKeysWhichAreTheValues) {
  const ModelConfig model = load_model_config("google/gemma-4-12B-it");
  ASSERT_EQ(model.attention.size(), 2U);
  EXPECT_EQ(model.attention[0].num_layers, 8U);
  EXPECT_EQ(model.attention[0].heads, (AttentionHeads{16, 1, 512, true}));
  EXPECT_EQ(model.attention[1].num_layers, 40U);
  EXPECT_EQ(model.attention[1].sliding_window, 1024U);
  EXPECT_EQ(model.heads_of(model.attention[1]), (AttentionHeads{16, 8, 256, false}));
  EXPECT_EQ(model.swa_pool_window, 1023U);
  EXPECT_EQ(kv_bytes("gemma-4-12b"), 2U * 2 * (8 * 1 * 512 + 40 * 8 * 256));
  EXPECT_EQ(kv_bytes("gemma-4-12b", 8), 2U * 2 * (8 * 1 * 512 + 40 * 1 * 256));  // the one key on every rank
  // No projection makes the values of wide layers.
  const auto weights = weight_list(model, make_shard(model, 1, 0));
  EXPECT_EQ(weight_named(weights, "qkv_proj").n, 16U * 512 + 512);
}

TEST(Gemma4, ExpertsStandBesideTheDenseMlp) {
  const ModelConfig model = load_model_config("gemma-4-26b-a4b");
  EXPECT_EQ(model.moe.num_layers, 30U);
  EXPECT_EQ(model.moe.num_shared_experts * model.moe.intermediate_size, 2112U);
}

TEST(Gemma4, SizesForPhonesAreRefusedByName) {
  Json json = config_of("gemma-4-31b");
  json["text_config"]["num_kv_shared_layers"] = 20;
  EXPECT_THAT(refused(json), AllOf(HasSubstr("num_kv_shared_layers"), HasSubstr("20")));
  json = config_of("gemma-4-31b");
  json["text_config"]["hidden_size_per_layer_input"] = 256;
  EXPECT_THAT(refused(json), HasSubstr("hidden_size_per_layer_input"));
}

TEST(Step3p5, WindowLayersHaveMoreHeads) {
  const ModelConfig model = load_model_config("stepfun-ai/Step-3.5-Flash");
  ASSERT_EQ(model.attention.size(), 2U);
  EXPECT_EQ(model.heads_of(model.attention[0]), (AttentionHeads{64, 8, 128, false}));
  EXPECT_EQ(model.heads_of(model.attention[1]), (AttentionHeads{96, 8, 128, false}));
  EXPECT_EQ(model.attention[0].num_layers, 12U);
  EXPECT_EQ(model.moe.num_layers, 42U);
  EXPECT_THAT(refusal([&] { make_shard(model, 64, 0); }), HasSubstr("96"));
}

TEST(Step3p5, ListsNameEveryLayerAndThoseThatDraft) {
  Json json = config_of("step-3.5-flash");
  json["num_nextn_predict_layers"] = 3;
  for (int i = 0; i < 3; ++i) json["layer_types"].push_back("sliding_attention");
  for (const Json& kind : json["layer_types"]) {
    const bool slides = kind == "sliding_attention";
    json["rope_theta"].push_back(slides ? 2e4 : 4e6);
    json["partial_rotary_factors"].push_back(slides ? 1.0 : 0.25);
    json["swiglu_limits"].push_back(json["swiglu_limits"].size() == 43 ? 7 : 0);
    json["swiglu_limits_shared"].push_back(json["swiglu_limits_shared"].size() == 44 ? Json(16) : Json());
  }
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 2},
                          {"original_max_position_embeddings", 131072},
                          {"low_freq_factor", 1},
                          {"high_freq_factor", 32}};
  const ModelConfig model = parse_model_config(json.dump(), "config.json");
  ASSERT_EQ(model.layers.size(), 45U);
  EXPECT_EQ(model.ropes[0].type, RopeType::kLlama3);
  EXPECT_EQ(model.ropes[0].theta, 4e6);
  EXPECT_EQ(model.ropes[0].partial_rotary_factor, 0.25);
  EXPECT_EQ(model.ropes[1].type, RopeType::kDefault);
  EXPECT_EQ(model.ropes[1].theta, 2e4);
  EXPECT_EQ(model.layers[43].expert_limit, 7);
  EXPECT_EQ(model.layers[43].mlp_limit, 0);
  EXPECT_EQ(model.layers[44].mlp_limit, 16);
  json["swiglu_limits"] = {1, 2};
  EXPECT_THAT(refused(json), AllOf(HasSubstr("swiglu_limits"), HasSubstr("one for each layer")));
  json["swiglu_limits"] = {};
  json["rope_scaling"] = "llama3";
  EXPECT_THAT(refused(json), HasSubstr("\"rope_scaling\" must be an object"));
}

// 81,920 bytes: what a public port of LFM2-1.2B counts (10 layers, 2 tokens of 2,048 elements of 2 bytes).
TEST(Lfm2, AConvolutionKeepsItsLastTokens) {
  const ModelConfig model = load_model_config("LiquidAI/LFM2.5-1.2B-Instruct");
  EXPECT_EQ(model.intermediate_size, 8192U);
  EXPECT_EQ(model.linear.num_layers, 10U);
  EXPECT_EQ(linear_layers(model, make_shard(model, 1, 0)).bytes_per_request(), 81920U);
  EXPECT_EQ(linear_layers(model, make_shard(model, 4, 0)).bytes_per_request(), 81920U / 4);
  EXPECT_EQ(kv_bytes("lfm2.5-1.2b"), 6U * 2 * 2 * 8 * 64);
  Json json = config_of("lfm2.5-1.2b");
  json.erase("layer_types");
  EXPECT_THAT(refused(json), HasSubstr("layer_types"));
  json["layer_types"] = std::vector<std::string>(16, "conv");
  EXPECT_THAT(refused(json), HasSubstr("both kinds"));
  json = config_of("lfm2.5-1.2b");
  json["conv_bias"] = true;
  EXPECT_THAT(refused(json), HasSubstr("conv_bias"));
}

TEST(KimiLinear, KdaInThreeOfFourLayers) {
  const ModelConfig model = load_model_config("moonshotai/Kimi-Linear-48B-A3B-Instruct");
  EXPECT_EQ(model.linear.kind, LinearKind::kKda);
  EXPECT_EQ(model.linear.num_layers, 20U);
  ASSERT_EQ(model.attention.size(), 1U);
  EXPECT_EQ(model.attention[0].num_layers, 7U);
  EXPECT_EQ(kv_bytes("kimi-linear-48b-a3b"), 7U * 2 * (512 + 64));
  Json json = config_of("kimi-linear-48b-a3b");
  json["linear_attn_config"]["kda_layers"] = {0};
  EXPECT_THAT(refused(json), HasSubstr("kda_layers"));
  json.erase("linear_attn_config");
  EXPECT_THAT(refused(json), HasSubstr("linear_attn_config"));
}

TEST(KimiLinear, K3IsItWithMoreGates) {
  const ModelConfig model = load_model_config("moonshotai/Kimi-K3");
  EXPECT_EQ(model.linear.num_layers, 69U);
  EXPECT_EQ(model.attention[0].num_layers, 24U);
  EXPECT_EQ(model.moe.latent_size, 3584U);
  const auto weights = weight_list(model, make_shard(model, 8, 0));
  EXPECT_EQ(weight_named(weights, "fused_qkvg_proj.kda").n, 4U * 12 * 128);
  EXPECT_EQ(weight_named(weights, "bfa_proj").n, 128U + 12);
  EXPECT_EQ(weight_named(weights, "g_proj").n, 12U * 128);
  EXPECT_EQ(weight_named(weights, "experts.gate_up_proj").k, 3584U);
  EXPECT_EQ(weight_named(weights, "experts.gate_up_proj").format.kind, WeightFormat::Kind::kMxfp4);
  EXPECT_EQ(weight_named(weights, "g_proj").format.kind, WeightFormat::Kind::k16Bit);
  // The published checkpoint is 1.42 TB (of 2^40 bytes), its vision tower included.
  EXPECT_NEAR(static_cast<double>(weight_bytes(model, make_shard(model, 1, 0))), 1.42 * (1ULL << 40),
              0.04e12);
  Json json = config_of("kimi-k3");
  json["text_config"]["linear_attn_config"]["decay_of_tomorrow"] = 1;
  EXPECT_THAT(refused(json), HasSubstr("decay_of_tomorrow"));
  json = config_of("kimi-k3");
  json["text_config"]["mla_use_nope"] = false;
  EXPECT_THAT(refused(json), HasSubstr("mla_use_nope"));
  json = config_of("kimi-linear-48b-a3b");
  json["attn_res_block_size"] = 12;  // SGLang's class of Kimi Linear has none
  EXPECT_THAT(refused(json), HasSubstr("attn_res_block_size"));
}

}  // namespace
}  // namespace tpsim::rank
