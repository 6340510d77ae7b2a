// Tokens of images against what Transformers' processors and SGLang's make of them
// (tests/references/record_image_tokens.py).
#include "rank/config/image_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/config/config_reader.h"
#include "rank/config/model_config.h"

namespace tpsim::rank {
namespace {

Json recorded() {
  std::ifstream file(std::string(TPSIM_SOURCE_DIR) + "/tests/golden/image_tokens.json");
  return Json::parse(file);
}

ImageLayout layout(const std::string& model, const Json& record) {
  static std::map<std::string, VisionConfig> configs;
  const auto [found, is_new] = configs.try_emplace(model);
  if (is_new) found->second = load_model_config(model).vision;
  return image_layout(found->second, record["width"].get<std::uint32_t>(),
                      record["height"].get<std::uint32_t>());
}

std::vector<std::uint32_t> lengths(const std::vector<attention::SequenceGroup>& groups) {
  std::vector<std::uint32_t> out;
  for (const attention::SequenceGroup& group : groups) out.insert(out.end(), group.count, group.length);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(ImageLayout, QwenResizesAsTransformers) {
  for (const Json& record : recorded()) {
    for (const std::string model : {"qwen2.5-vl-7b", "qwen3-vl"}) {
      const ImageLayout image = layout(model == "qwen3-vl" ? "qwen3-vl-8b" : model, record);
      const Json& expected = record[model];
      const auto patches = expected["rows"].get<std::uint32_t>() * expected["columns"].get<std::uint32_t>();
      EXPECT_EQ(image.patches, patches) << model << record.dump();
      EXPECT_EQ(image.tokens, patches / 4) << model << record.dump();
      EXPECT_EQ(image.embedded, image.tokens);
      EXPECT_EQ(lengths(image.sequences), std::vector<std::uint32_t>{patches});
      if (expected.contains("windows")) {
        EXPECT_EQ(lengths(image.windows), expected["windows"].get<std::vector<std::uint32_t>>())
            << record.dump();
      }
    }
  }
}

TEST(ImageLayout, Llama4ChoosesTransformersCanvas) {
  for (const Json& record : recorded()) {
    const ImageLayout image = layout("llama-4-scout", record);
    const Json& expected = record["llama-4-scout"];
    EXPECT_EQ(image.tiles, expected["tiles"].get<std::uint32_t>()) << record.dump();
    EXPECT_EQ(image.before + image.tokens + image.after, expected["prompt"].get<std::uint32_t>())
        << record.dump();
    EXPECT_EQ(image.embedded, expected["embedded"].get<std::uint32_t>()) << record.dump();
    EXPECT_EQ(image.patches, image.tiles * 577);  // 24 x 24 and the class token
  }
}

TEST(ImageLayout, InternvlTilesAsSglangAndMostlyAsTransformers) {
  int equal = 0;
  const Json records = recorded();
  for (const Json& record : records) {
    const ImageLayout image = layout("internvl3.5-8b", record);
    const Json& expected = record["internvl"];
    EXPECT_EQ(image.tiles, expected["sglang"].get<std::uint32_t>()) << record.dump();
    EXPECT_EQ(image.tokens, image.tiles * 256);
    equal += image.tiles == expected["transformers"].get<std::uint32_t>() ? 1 : 0;
    // Only where two grids are equally near do they differ, and SGLang's is the larger.
    EXPECT_GE(expected["sglang"].get<std::uint32_t>(), expected["transformers"].get<std::uint32_t>());
  }
  EXPECT_GT(equal, static_cast<int>(records.size()) * 2 / 3);
}

TEST(ImageLayout, Gemma3HasOneSize) {
  for (const Json& record : recorded()) {
    const ImageLayout image = layout("gemma-3-27b", record);
    EXPECT_EQ(image.tokens, 256U);
    EXPECT_EQ(image.patches, 4096U);
  }
}

TEST(ImageLayout, RefusesWhatTheModelRefuses) {
  const VisionConfig vision = load_model_config("qwen2.5-vl-7b").vision;
  EXPECT_THROW(image_layout(vision, 10, 2001), UserError);
  EXPECT_NO_THROW(image_layout(vision, 10, 2000));
}

TEST(VisionConfig, ReadsThePreprocessor) {
  const std::string text =
      R"({"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {"patch_size": [16, 16]},
    "text_config": {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64,
                    "vocab_size": 100, "max_position_embeddings": 1000, "rope_scaling": {"rope_type": "default"}}})";
  const ModelConfig model = parse_model_config(text, "here");
  EXPECT_EQ(model.vision.patch_size, 16U);
  EXPECT_EQ(model.vision.out_hidden_size, 64U);
  const std::string bad =
      R"({"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {"num_heads": 7},)" +
      text.substr(text.find("\n"));
  EXPECT_THROW(parse_model_config(bad, "here"), UserError);
}

}  // namespace
}  // namespace tpsim::rank
