// MiniMax M3: what its config says, what its ranks keep and its pool holds.
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

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string why_m3_is_refused(const Json& json) {
  return refusal([&] { parse_model_config(json.dump(), "config.json"); });
}

TEST(MinimaxM3, TheFirstLayersArePlain) {
  const ModelConfig model = load_model_config("MiniMaxAI/MiniMax-M3");
  EXPECT_TRUE(model.is_block_sparse());
  EXPECT_FALSE(model.is_sparse());
  ASSERT_EQ(model.attention.size(), 2U);
  for (const AttentionKind& kind : model.attention) EXPECT_EQ(kind.num_layers, kind.indexer ? 57U : 3U);
  EXPECT_EQ(model.moe.num_layers, 57U);
  EXPECT_EQ(model.indexer.top_k, 2048U);
  EXPECT_EQ(model.activation, Activation::kGptOssSwiGlu);
  // As published.
  EXPECT_NEAR(static_cast<double>(num_parameters(model, make_shard(model, 1, 0))), 428e9, 2e9);
}

TEST(MinimaxM3, QueriesOfTheIndexerAreCutAndItsKeyIsNot) {
  const ModelConfig model = load_model_config("minimax-m3");
  for (const std::uint32_t tp : {1U, 2U, 4U, 8U}) {
    const auto weights = weight_list(model, make_shard(model, tp, tp - 1));
    const std::uint64_t kv = std::max(1U, 4 / tp), q = 64 / tp;
    EXPECT_EQ(weight_named(weights, "qkv_proj").n, (q + 2 * kv) * 128);
    EXPECT_EQ(weight_named(weights, "qkv_proj").layers, 3U);
    EXPECT_EQ(weight_named(weights, "qkv_proj.index").n, (q + 3 * kv + 1) * 128);
    EXPECT_EQ(weight_named(weights, "qkv_proj.index").layers, 57U);
  }
}

// SGLang 0.5.23, pool_configurator.py: keys and values of every layer, and an index key of the sparse ones.
TEST(MinimaxM3, PoolsAreSGLangs) {
  const ModelConfig model = load_model_config("minimax-m3");
  const Shard shard = make_shard(model, 4, 0);
  EXPECT_EQ(kv_bytes_per_token(model, shard, NumberFormat::kBf16), 60U * 2 * 128 * 2 + 57U * 128 * 2);
  EXPECT_EQ(kv_bytes_per_token(model, shard, NumberFormat::kFp8E4M3), 60U * 2 * 128 + 57U * 128);
}

TEST(MinimaxM3, Mxfp8HasAScaleForThirtyTwoInputs) {
  const ModelConfig model = load_model_config("MiniMaxAI/MiniMax-M3-MXFP8");
  const WeightFormat format =
      weight_named(weight_list(model, make_shard(model, 4, 0)), "experts.gate_up_proj").format;
  EXPECT_EQ(format.kind, WeightFormat::Kind::kFp8);
  EXPECT_EQ(format.bytes(64, 64), 64U * 64 + 64 * 2);
  Json json = Json::parse(*catalogue::find("models", "minimax-m3"));
  json["quantization_config"] = {{"quant_method", "mxfp8"}, {"moe_quant_algo", "NVFP4"}};
  EXPECT_THAT(why_m3_is_refused(json), HasSubstr("moe_quant_algo"));
}

TEST(MinimaxM3, RefusesWhatHasNoPrice) {
  const Json json = Json::parse(*catalogue::find("models", "minimax-m3"));
  const auto with = [&](const char* key, const Json& value) {
    Json changed = json;
    changed["text_config"]["sparse_attention_config"][key] = value;
    return why_m3_is_refused(changed);
  };
  EXPECT_THAT(with("sparse_attention_freq", {0, 1}), HasSubstr("60 layers"));
  EXPECT_THAT(with("sparse_num_index_heads", 8), HasSubstr("sparse_num_index_heads"));
  EXPECT_THAT(with("sparse_disable_index_value", Json(std::vector<int>(60, 0))),
              HasSubstr("sparse_disable_index_value"));
  Json plain = json;
  plain["text_config"].erase("sparse_attention_config");
  EXPECT_THAT(why_m3_is_refused(plain), HasSubstr("sparse_attention_config"));
}

}  // namespace
}  // namespace tpsim::rank
