#include "rank/config/quantization_config.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

QuantizationConfig read(const char* text) {
  return read_quantization(nlohmann::json::parse(text), "config.json");
}

TEST(QuantizationConfig, DeepSeekBlocks) {
  const QuantizationConfig config = read(
      R"({"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
          "weight_block_size": [128, 128]}})");
  EXPECT_EQ(config.method, "fp8");
  EXPECT_FALSE(config.online);
  const WeightFormat blocks{WeightFormat::Kind::kFp8, 128, 128, false, ActivationFormat::kFp8};
  EXPECT_EQ(config.of("model.layers.0.self_attn.kv_b_proj"), blocks);
  EXPECT_EQ(config.of("model.layers.3.mlp.experts"), blocks);
  EXPECT_FALSE(config.of("model.layers.3.mlp.gate").quantized());
  EXPECT_FALSE(config.of("lm_head").quantized());
  EXPECT_FALSE(config.of("model.embed_tokens").quantized());
  // 7168 x 576: 5 x 56 scales.
  EXPECT_EQ(blocks.bytes(576, 7168), std::uint64_t{576 * 7168 + 4 * 5 * 56});
}

TEST(QuantizationConfig, IgnoredPathsAreWholeComponents) {
  const QuantizationConfig config =
      read(R"({"quantization_config": {"quant_method": "fp8", "activation_scheme": "static",
               "ignored_layers": ["model.layers.1.self_attn.q_proj", "mlp.gate", "model.layers.12.mlp.experts.7.up_proj"]}})");
  EXPECT_FALSE(config.of("model.layers.1.self_attn.qkv_proj").quantized());
  EXPECT_TRUE(config.of("model.layers.11.self_attn.qkv_proj").quantized());
  EXPECT_TRUE(config.of("model.layers.1.mlp.gate_up_proj").quantized());
  EXPECT_FALSE(config.of("model.layers.12.mlp.experts").quantized());
  EXPECT_TRUE(config.of("model.layers.2.mlp.experts").quantized());
}

TEST(QuantizationConfig, ModelOptWildcards) {
  const QuantizationConfig config = read_hf_quant_config(
      nlohmann::json::parse(
          R"({"producer": {}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8",
          "group_size": 16, "exclude_modules": ["model.layers.3.self_attn*", "lm_head", "model.layers.5.*gate"]}})"),
      "hf_quant_config.json");
  EXPECT_EQ(config.method, "modelopt_fp4");
  EXPECT_TRUE(config.kv_cache_fp8);
  EXPECT_FALSE(config.of("model.layers.3.self_attn.o_proj").quantized());
  EXPECT_TRUE(config.of("model.layers.33.self_attn.o_proj").quantized());
  EXPECT_TRUE(config.of("model.layers.5.mlp.gate_up_proj").quantized());
  EXPECT_EQ(config.linear.bytes(64, 128), std::uint64_t{64 * 128 / 2 + 64 * 128 / 16 + 4});
}

TEST(QuantizationConfig, CompressedTensors) {
  const QuantizationConfig config = read(
      R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
          "ignore": ["lm_head", "re:.*self_attn.*"], "config_groups": {"group_0": {"targets": ["Linear"],
          "input_activations": null, "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
          "symmetric": true}}}}})");
  EXPECT_FALSE(config.of("model.layers.3.self_attn.o_proj").quantized());
  const WeightFormat groups{WeightFormat::Kind::kInt4, 1, 32, false, ActivationFormat::k16Bit};
  EXPECT_EQ(config.of("model.layers.3.mlp.experts"), groups);
  EXPECT_EQ(groups.bytes(10, 64), std::uint64_t{10 * 64 / 2 + 10 * 2 * 2});
}

TEST(QuantizationConfig, IntegerGroups) {
  const QuantizationConfig gptq =
      read(R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": false,
               "sym": true, "lm_head": true, "dynamic": {"-:.*\\.down_proj": {}}}})");
  EXPECT_EQ(gptq.method, "gptq_marlin");
  EXPECT_TRUE(gptq.of("lm_head").quantized());
  EXPECT_FALSE(gptq.of("model.layers.3.mlp.down_proj").quantized());
  EXPECT_EQ(gptq.linear.block_k, 0U);
  const QuantizationConfig awq = read(
      R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true,
               "modules_to_not_convert": ["layers.1"]}})");
  EXPECT_EQ(awq.method, "awq_marlin");
  EXPECT_FALSE(awq.of("model.layers.12.mlp.down_proj").quantized()) << "SGLang looks for the text anywhere";
  EXPECT_EQ(awq.linear.bytes(8192, 8192), std::uint64_t{8192 * 8192 / 2 + 8192 * 64 * 5 / 2});
}

TEST(QuantizationConfig, Mxfp4IsTheExpertsOnly) {
  const QuantizationConfig config =
      read(R"({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})");
  EXPECT_FALSE(config.of("model.layers.3.self_attn.qkv_proj").quantized());
  EXPECT_EQ(config.of("model.layers.3.mlp.experts").bytes(2, 64), std::uint64_t{64 + 4});
}

TEST(ResolveQuantization, OnlineFp8) {
  const QuantizationConfig config = resolve_quantization({}, "FP8");
  EXPECT_TRUE(config.online);
  EXPECT_EQ(config.linear.block_n, 1U);
  EXPECT_EQ(config.experts.block_n, 0U);
  EXPECT_FALSE(config.of("lm_head").quantized());
}

TEST(ResolveQuantization, MismatchesNameBoth) {
  const QuantizationConfig fp8 = read(R"({"quantization_config": {"quant_method": "fp8"}})");
  EXPECT_EQ(resolve_quantization(fp8, "").method, "fp8");
  EXPECT_EQ(resolve_quantization(fp8, "unquant").method, "fp8");
  EXPECT_NE(refusal([&] { resolve_quantization(fp8, "awq"); }).find("--quantization awq"), std::string::npos);
  EXPECT_NE(refusal([&] { resolve_quantization({}, "awq"); }).find("16 bit"), std::string::npos);
  EXPECT_NE(refusal([&] { resolve_quantization({}, "fp9"); }).find("fp8"), std::string::npos);
  EXPECT_NE(refusal([&] { resolve_quantization({}, "bitsandbytes"); }).find("no price"), std::string::npos);
  EXPECT_NE(refusal([&] { resolve_quantization({}, "quark"); }).find("AMD"), std::string::npos);
}

TEST(QuantizationConfig, BadInputNamesTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quantization_config": 3})", "quantization_config"},
      {R"({"quantization_config": {"quant_method": "hqq"}})", "quant_method"},
      {R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}})",
       "weight_block_size"},
      {R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "static"}})",
       "activation_scheme"},
      {R"({"quantization_config": {"quant_method": "gptq", "bits": 3}})", "3 bits"},
      {R"({"quantization_config": {"quant_method": "compressed-tensors"}})", "config_groups"},
      {R"({"quantization_config": {"quant_method": "awq", "bits": 4, "modules_to_not_convert": [1]}})",
       "modules_to_not_convert"},
      {R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8"}})", "W4A8"},
  };
  for (const auto& [text, part] : cases)
    EXPECT_NE(refusal([&text = text] { read(text); }).find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace tpsim::rank
