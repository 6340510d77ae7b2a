// What config.json says of encoders beyond their shapes: InternVL in both spellings, and the ids of tokens
// around and within images.
#include "rank/config/vision_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/config/model_config.h"

namespace tpsim::rank {
namespace {

using nlohmann::json;

const json kText = {{"hidden_size", 64},        {"intermediate_size", 96},        {"num_hidden_layers", 2},
                    {"num_attention_heads", 8}, {"num_key_value_heads", 4},       {"vocab_size", 200},
                    {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 512}, {"model_type", "qwen3"}};

json transformers_internvl() {
  return {{"architectures", {"InternVLForConditionalGeneration"}},
          {"text_config", kText},
          {"vision_config",
           {{"hidden_size", 48},
            {"intermediate_size", 64},
            {"num_hidden_layers", 6},
            {"num_attention_heads", 4},
            {"patch_size", {4, 4}},
            {"image_size", {16, 16}},
            {"norm_type", "rms_norm"},
            {"use_qk_norm", true},
            {"attention_bias", false}}},
          {"downsample_ratio", 0.5},
          {"vision_feature_layer", -1}};
}

ModelConfig parsed(const json& config) { return parse_model_config(config.dump(), "config.json"); }

std::string refusal(const json& config) {
  try {
    parsed(config);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(VisionConfig, InternVlInTransformersSpellingIsTheSameModel) {
  const json theirs = transformers_internvl();
  const ModelConfig model = parsed(theirs);
  EXPECT_EQ(model.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(model.vision.architecture, "InternVLForConditionalGeneration");
  EXPECT_TRUE(model.vision.rms_norm);
  EXPECT_TRUE(model.vision.qk_norm);
  EXPECT_FALSE(model.vision.qkv_bias);
  EXPECT_EQ(model.vision.computed_layers, 6U);

  json own = theirs;
  own["architectures"] = {"InternVLChatModel"};
  own["llm_config"] = own["text_config"];
  own["llm_config"]["architectures"] = {"Qwen3ForCausalLM"};
  own.erase("text_config");
  own.erase("vision_feature_layer");
  own["select_layer"] = -1;
  own["force_image_size"] = 16;
  json& vision = own["vision_config"];
  vision["patch_size"] = 4;
  vision["image_size"] = 16;
  vision["qk_normalization"] = true;
  vision["qkv_bias"] = false;
  const VisionConfig same = parsed(own).vision;
  EXPECT_EQ(same.hidden_size, model.vision.hidden_size);
  EXPECT_EQ(same.patch_size, model.vision.patch_size);
  EXPECT_EQ(same.image_size, model.vision.image_size);
  EXPECT_EQ(same.qk_norm, model.vision.qk_norm);
  EXPECT_EQ(same.rms_norm, model.vision.rms_norm);
  EXPECT_EQ(same.qkv_bias, model.vision.qkv_bias);
}

TEST(VisionConfig, ALayerInBetweenEndsTheEncoder) {
  json config = transformers_internvl();
  for (const auto& [layer, computed] : {std::pair(-1, 6U), {-4, 3U}, {6, 6U}, {1, 1U}}) {
    config["vision_feature_layer"] = layer;
    EXPECT_EQ(parsed(config).vision.computed_layers, computed) << layer;
  }
  for (const int layer : {0, 7, -7, -100}) {
    config["vision_feature_layer"] = layer;
    EXPECT_NE(refusal(config).find("vision_feature_layer"), std::string::npos) << layer;
  }
  config["vision_feature_layer"] = -1;
  config["vision_feature_select_strategy"] = "full";
  EXPECT_NE(refusal(config).find("vision_feature_select_strategy \"full\""), std::string::npos);
}

TEST(VisionConfig, Llama4sSeparatorsFollowItsFirstId) {
  json config = {{"architectures", {"Llama4ForConditionalGeneration"}},
                 {"text_config", kText},
                 {"vision_config",
                  {{"image_size", 16}, {"patch_size", 4}, {"hidden_size", 32}, {"num_attention_heads", 4}}},
                 {"boi_token_index", 200080},
                 {"eoi_token_index", 200081},
                 {"image_token_index", 200092}};
  config["text_config"].update(
      {{"num_local_experts", 4}, {"num_experts_per_tok", 1}, {"intermediate_size_mlp", 128}});
  const VisionConfig vision = parsed(config).vision;
  EXPECT_EQ(vision.marker_ids_before, std::vector<std::uint32_t>{200080});
  EXPECT_EQ(vision.marker_ids_after, std::vector<std::uint32_t>{200081});
  EXPECT_EQ(vision.tile_column_id, 200084U);
  EXPECT_EQ(vision.tile_row_id, 200085U);
  EXPECT_EQ(vision.small_copy_id, 200090U);
  config["image_token_index"] = 200093;
  EXPECT_EQ(parsed(config).vision.small_copy_id, 0U);
}

}  // namespace
}  // namespace tpsim::rank
