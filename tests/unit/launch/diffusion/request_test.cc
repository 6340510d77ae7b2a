// One request by the flags and what the model's defaults leave open.
#include <gtest/gtest.h>

#include "launch/diffusion/attention_choice.h"
#include "launch/diffusion/residency.h"
#include "launch/diffusion/resolve.h"
#include "proto/base/error.h"

namespace tpsim::launch::request_test {

rank::PipelineConfig pipeline(const std::string& class_name, bool video) {
  rank::PipelineConfig config;
  config.name = config.class_name = class_name;
  config.video = video;
  config.temporal_stride = 4;
  config.defaults = {.width = 1280, .height = 720, .frames = video ? 81U : 1U, .guidance = 5, .guided = true};
  return config;
}

std::uint32_t frames(const rank::PipelineConfig& config, std::uint32_t asked, std::uint32_t gpus,
                     bool down = false) {
  SamplingAsked sampling;
  sampling.frames = asked;
  sampling.round_frames_down = down;
  std::vector<std::string> notes;
  return resolve_request(sampling, config, gpus, notes).frames;
}

// SGLang's SamplingParams._adjust_visual_fields: Wan cuts any number, others make latents a multiple of the
// GPUs.
TEST(Request, FramesAreAdjusted) {
  EXPECT_EQ(frames(pipeline("WanPipeline", true), 81, 8), 81U);
  EXPECT_EQ(frames(pipeline("HunyuanVideoPipeline", true), 125, 8), 125U);  // 32 latents
  EXPECT_EQ(frames(pipeline("HunyuanVideoPipeline", true), 65, 4), 77U);    // 17 become 20
  EXPECT_EQ(frames(pipeline("HunyuanVideoPipeline", true), 65, 4, true), 61U);
  EXPECT_EQ(frames(pipeline("HunyuanVideoPipeline", true), 65, 1), 65U);
  rank::PipelineConfig image_to_video = pipeline("WanImageToVideoPipeline", true);
  image_to_video.image_input = true;
  EXPECT_EQ(frames(image_to_video, 24, 1), 25U);
  EXPECT_THROW(frames(pipeline("FluxPipeline", false), 2, 1), UserError);
}

// The sizes of SGLang's CI for a square input (../shared/data/diffusion/PUBLISHED.md).
TEST(Request, AnInputImageShapesWansVideos) {
  rank::PipelineConfig config = pipeline("WanImageToVideoPipeline", true);
  config.image_input = true;
  config.spatial_stride = 8, config.patch = 2;
  for (const auto& [width, height, side] : {std::tuple{832U, 480U, 624U}, std::tuple{1280U, 720U, 960U}}) {
    config.defaults.width = width, config.defaults.height = height;
    SamplingAsked sampling;
    sampling.images = {{600, 600}};
    std::vector<std::string> notes;
    const rank::GenerationRequest request = resolve_request(sampling, config, 1, notes);
    EXPECT_EQ(request.width, side);
    EXPECT_EQ(request.height, side);
    EXPECT_EQ(notes.size(), 1U);
  }
}

TEST(Request, GuidanceNeedsAScaleAndANegativePrompt) {
  const auto guided = [](const rank::PipelineConfig& config, double scale, bool negative) {
    SamplingAsked sampling;
    sampling.guidance = scale;
    if (negative) sampling.negative_prompt = true;
    std::vector<std::string> notes;
    return resolve_request(sampling, config, 1, notes).guided;
  };
  EXPECT_TRUE(guided(pipeline("WanPipeline", true), 5, false));
  EXPECT_FALSE(guided(pipeline("WanPipeline", true), 1, false));
  EXPECT_FALSE(guided(pipeline("FluxPipeline", false), 3.5, false));
  EXPECT_TRUE(guided(pipeline("FluxPipeline", false), 3.5, true));
  EXPECT_TRUE(guided(pipeline("ZImagePipeline", false), 0.5, false));
}

// 80 GB hold all weights of either pipeline twice, but SGLang cannot size FLUX.2's VAE: on its CI the text
// encoder of klein streams, that of Z-Image stays.
TEST(Residency, WhatCannotBeSizedIsNotKept) {
  for (const auto& [name, where] : {std::pair{"flux.2-klein-4b", rank::Residency::kLayerwiseOffload},
                                    std::pair{"z-image-turbo", rank::Residency::kResident}}) {
    const rank::PipelineConfig config = rank::load_pipeline(name);
    const ResidencyChoice choice = resolve_residency({}, {.config = &config,
                                                          .rule = &deployment_rule(config),
                                                          .performance_mode = "auto",
                                                          .memory_bytes = 79.6 * kGib});
    EXPECT_EQ(choice.components.at("text_encoder"), where) << name;
    EXPECT_EQ(choice.components.at("transformer"), rank::Residency::kResident) << name;
    const ResidencyChoice eight = resolve_residency({}, {.config = &config,
                                                         .rule = &deployment_rule(config),
                                                         .performance_mode = "auto",
                                                         .memory_bytes = 79.6 * kGib,
                                                         .quantised = true});
    EXPECT_EQ(eight.components.at("text_encoder"), rank::Residency::kLayerwiseOffload) << name;
  }
}

TEST(ComponentBackends, AreReadAsSglangReadsThem) {
  const auto asked = read_component_backends(" text-encoder = torch_sdpa ,transformer.Cross=fa3,,");
  EXPECT_EQ(asked.at("text_encoder"), "torch_sdpa");
  EXPECT_EQ(asked.at("transformer.cross"), "fa");
  EXPECT_EQ(read_component_backends(R"({"transformer": "sage_attn"})").at("transformer"), "sage_attn");
  for (const char* bad :
       {"transformer", "=fa", "transformer.both=fa", "transformer=nothing", R"({"transformer": 1})"})
    EXPECT_THROW(read_component_backends(bad), UserError) << bad;
}

}  // namespace tpsim::launch::request_test
