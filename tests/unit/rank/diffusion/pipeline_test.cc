#include "rank/diffusion/pipeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "proto/base/error.h"
#include "rank/config/pipeline_names.h"

namespace tpsim::rank {
namespace {

const PipelineComponent& find(const PipelineConfig& config, std::string_view name) {
  for (const PipelineComponent& c : config.components) {
    if (c.name == name) return c;
  }
  throw std::out_of_range(std::string(name));
}

// Published counts: model cards and sizes of safetensors.
TEST(DiffusionPipeline, ParametersAreThePublishedOnes) {
  struct Row {
    const char *pipeline, *component;
    double billions, within;
  };
  for (const Row& row : {Row{"wan2.1-t2v-14b", "transformer", 14.29, 0.01},
                         {"wan2.1-t2v-1.3b", "transformer", 1.42, 0.01},
                         {"wan2.1-i2v-14b-480p", "transformer", 16.40, 0.01},
                         {"wan2.2-ti2v-5b", "transformer", 5.0, 0.01},
                         {"wan2.2-ti2v-5b", "vae", 0.705, 0.01},
                         {"wan2.1-t2v-14b", "vae", 0.127, 0.01},
                         {"wan2.1-t2v-14b", "text_encoder", 5.68, 0.01},
                         {"flux.1-dev", "transformer", 11.90, 0.01},
                         {"flux.1-dev", "text_encoder_2", 4.76, 0.01},
                         {"flux.1-dev", "vae", 0.0838, 0.01},
                         {"flux.2-dev", "transformer", 32.2, 0.01},
                         {"flux.2-klein-4b", "transformer", 3.88, 0.01},
                         {"qwen-image", "transformer", 20.43, 0.01},
                         {"qwen-image", "text_encoder", 8.29, 0.01},
                         {"z-image-turbo", "transformer", 6.15, 0.01},
                         {"hunyuanvideo", "transformer", 12.82, 0.01},
                         {"hunyuanvideo", "vae", 0.246, 0.01},
                         {"sd3.5-large", "transformer", 8.06, 0.01},
                         {"ltx-2", "transformer", 18.9, 0.02}})
    EXPECT_NEAR(static_cast<double>(find(load_pipeline(row.pipeline), row.component).parameters) / 1e9,
                row.billions, row.within * row.billions)
        << row.pipeline << " " << row.component;
}

// Most of a transformer, and of an encoder but for its tables, is in its layers: what streams.
TEST(DiffusionPipeline, LittleIsOutsideOfLayers) {
  for (const std::string& name : pipeline_catalogue()) {
    for (const PipelineComponent& c : load_pipeline(name).components) {
      if (c.layers == 0) continue;
      EXPECT_LT(static_cast<double>(c.outside), 0.35 * static_cast<double>(c.loaded))
          << name << " " << c.name;
    }
  }
}

TEST(DiffusionPipeline, QuantisedCheckpointsKeepModulesThatThereAre) {
  std::size_t known = 0;
  for (const std::string& name : pipeline_catalogue()) {
    const PipelineConfig config = load_pipeline(name);
    const auto transformer =
        std::ranges::find(config.components, ComponentKind::kTransformer, &PipelineComponent::kind);
    for (const QuantisedCheckpoint& checkpoint : config.quantised) {
      ++known;
      EXPECT_EQ(checkpoint.kept.modules >> kModules, 0U) << checkpoint.id;  // no name that is unknown
      EXPECT_LT(checkpoint.kept.blocks, 0.2) << checkpoint.id;
      EXPECT_EQ(pipeline_name(checkpoint.id).has_value(), checkpoint.whole) << checkpoint.id;
      const double all = static_cast<double>(transformer->parameters),
                   quantised = quantised_parameters(config, *transformer, checkpoint.kept);
      EXPECT_GT(quantised, 0.3 * all) << checkpoint.id;
      EXPECT_LT(quantised, quantised_parameters(config, *transformer, {})) << checkpoint.id;
    }
  }
  EXPECT_GE(known, 13U);
}

TEST(DiffusionPipeline, NamesAndIdsAndClasses) {
  EXPECT_TRUE(is_pipeline("Wan-AI/Wan2.1-T2V-14B-Diffusers"));
  EXPECT_TRUE(is_pipeline("flux.1-dev"));
  EXPECT_FALSE(is_pipeline("llama-3.1-8b"));
  const PipelineConfig wan = load_pipeline("Wan-AI/Wan2.1-T2V-14B-Diffusers");
  EXPECT_EQ(wan.class_name, "WanPipeline");
  EXPECT_TRUE(wan.video && !wan.needs_image && wan.defaults.guided);
  EXPECT_EQ(wan.temporal_stride, 4U);
  EXPECT_EQ(wan.spatial_stride * wan.patch, 16U);
  EXPECT_EQ(load_pipeline("wan2.2-ti2v-5b").spatial_stride, 16U);
  EXPECT_EQ(load_pipeline("z-image-turbo").defaults.steps, 9U);
  EXPECT_TRUE(load_pipeline("qwen-image-edit").needs_image);
  for (const std::string& name : pipeline_catalogue()) {
    const PipelineConfig config = load_pipeline(name);
    EXPECT_GT(config.defaults.width, 0U) << name;
    EXPECT_GE(config.components.size(), 3U) << name;
  }
}

class DiffusionFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tpsim_pipeline_" + std::to_string(getpid()));
    write("model_index.json",
          R"({"_class_name": "FluxPipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder_2": ["transformers", "T5EncoderModel"], "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"]})");
    write("text_encoder_2/config.json",
          R"({"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 2})");
    write("transformer/config.json",
          R"({"num_attention_heads": 2, "num_layers": 1, "num_single_layers": 1})");
    write("vae/config.json", R"({"block_out_channels": [32, 64], "latent_channels": 4})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string said() const {
    try {
      load_pipeline(folder_.string());
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(DiffusionFolder, IsReadAsItsFilesSay) {
  ASSERT_TRUE(is_pipeline(folder_.string()));
  const PipelineConfig config = load_pipeline(folder_.string());
  EXPECT_EQ(config.components.size(), 3U);
  EXPECT_EQ(find(config, "transformer").layers, 2U);
  EXPECT_EQ(config.spatial_stride, 2U);
}

TEST_F(DiffusionFolder, WhatIsWrongIsNamed) {
  write("transformer/config.json", R"({"num_attention_heads": -1})");
  EXPECT_NE(said().find("num_attention_heads"), std::string::npos) << said();
  write("transformer/config.json", "{");
  EXPECT_NE(said().find("transformer/config.json"), std::string::npos) << said();
  std::filesystem::remove(folder_ / "transformer/config.json");
  EXPECT_NE(said().find("transformer"), std::string::npos) << said();
  write("model_index.json", R"({"_class_name": "SanaPipeline"})");
  EXPECT_NE(said().find("FluxPipeline"), std::string::npos) << said();
  write("model_index.json", R"({"_class_name": "FluxPipeline", "vae": ["diffusers", "AutoencoderTiny"]})");
  EXPECT_NE(said().find("AutoencoderTiny"), std::string::npos) << said();
}

}  // namespace
}  // namespace tpsim::rank
