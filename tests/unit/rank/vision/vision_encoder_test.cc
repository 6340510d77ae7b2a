#include "rank/vision/vision_encoder.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "attention/full/full_attention.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"

namespace tpsim::rank {
namespace {

VisionEncoder encoder(const std::string& model, VisionSharing sharing, const std::string& backend = "fa3") {
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  return VisionEncoder(
      load_model_config(model).vision, sharing, profile,
      attention::find_full_attention(backend, attention::GpuGeneration::kHopper, "h200-sxm"));
}

// Parameters that Transformers 5.23 counts in these encoders, in millions, and in projectors apart: Gemma 3's
// of 1152 x 5376, Llama 4's of 4096 x 5120, InternVL's of 4096 x 4096 twice. SGLang pads the MLPs of
// Qwen2.5-VL.
TEST(VisionEncoder, WeighsWhatTheCheckpointsWeigh) {
  for (const auto& [model, millions] : {std::pair<std::string, double>{"qwen2.5-vl-7b", 676.6},
                                        {"qwen3-vl-8b", 576.4},
                                        {"gemma-3-27b", 416.87 + 6.19},
                                        {"llama-4-scout", 850.96 + 20.97},
                                        {"internvl3.5-8b", 304.01 + 33.57}}) {
    const double bytes = static_cast<double>(vision_weight_bytes(load_model_config(model).vision, {}));
    EXPECT_NEAR(bytes / 2e6, millions, millions * 0.002) << model;
  }
}

TEST(VisionEncoder, ShardsTakeLessAndReplicasDoNot) {
  const VisionConfig vision = load_model_config("qwen2.5-vl-7b").vision;
  const std::uint64_t whole = vision_weight_bytes(vision, {});
  const std::uint64_t quarter = vision_weight_bytes(vision, {.ranks = 4, .data_parallel = false});
  EXPECT_LT(quarter, whole / 3);
  EXPECT_GT(quarter, whole / 4);
  EXPECT_EQ(vision_weight_bytes(vision, {.ranks = 4, .data_parallel = true}), whole);
}

TEST(VisionEncoder, MoreAndLargerImagesCostMore) {
  for (const std::string model :
       {"qwen2.5-vl-7b", "qwen3-vl-8b", "gemma-3-27b", "llama-4-scout", "internvl3.5-8b"}) {
    for (const VisionSharing sharing :
         {VisionSharing{1, false}, VisionSharing{4, false}, VisionSharing{4, true}}) {
      const VisionEncoder priced = encoder(model, sharing);
      if (sharing.data_parallel && !priced.config().data_parallel) continue;
      const std::vector<ImageSize> images(9, {1280, 720});
      double before = 0;
      for (const std::size_t count : {1, 5, 9}) {
        const EncoderCost cost = priced.encode(std::span(images).first(count));
        EXPECT_GT(cost.seconds, before) << model << count;
        EXPECT_GT(cost.flops, 0);
        EXPECT_GT(cost.memory_bytes, 0);
        EXPECT_EQ(cost.communicated_bytes > 0, sharing.ranks > 1) << model;
        before = cost.seconds;
      }
      EXPECT_EQ(priced.encode({}).seconds, 0);
    }
  }
}

// Twice the multiply-adds of the matrices, and of attention: Qwen3-VL has no windows.
TEST(VisionEncoder, CountsTheArithmeticOfTheModel) {
  const VisionEncoder priced = encoder("qwen3-vl-8b", {});
  const std::array<ImageSize, 1> image = {{{2048, 2048}}};
  const double patches = 128 * 128;
  const double tokens = patches / 4;
  const double layer = 4.0 * 1152 * 1152 + 2.0 * 1152 * 4304;
  const double merger = 4608.0 * 4608 + 4608.0 * 4096;
  const double expected = 2 * (patches * (27 * layer + 1152.0 * 3 * 2 * 16 * 16) + tokens * 4 * merger) +
                          27 * 4 * patches * patches * 16 * 96;  // heads of 72 in kernels of 96
  EXPECT_NEAR(priced.encode(image).flops, expected, expected * 0.02);
}

TEST(VisionEncoder, ReplicasShareManyImages) {
  const std::vector<ImageSize> images(8, {1920, 1080});
  const double whole = encoder("qwen2.5-vl-7b", {}).encode(images).seconds;
  const double shared = encoder("qwen2.5-vl-7b", {4, true}).encode(images).seconds;
  EXPECT_LT(shared, whole / 3);
  // One image keeps one of them busy.
  const double one = encoder("qwen2.5-vl-7b", {}).encode(std::span(images).first(1)).seconds;
  EXPECT_GE(encoder("qwen2.5-vl-7b", {4, true}).encode(std::span(images).first(1)).seconds, one);
}

TEST(VisionEncoder, SdpaAttendsToThePackedSequence) {
  const std::vector<ImageSize> images(8, {1920, 1080});
  EXPECT_GT(encoder("qwen2.5-vl-7b", {}, "sdpa").encode(images).flops,
            4 * encoder("qwen2.5-vl-7b", {}, "fa3").encode(images).flops);
}

// Measured on an H200 (tests/calibration/measured/h200-sxm_vision.csv), in milliseconds.
TEST(VisionEncoder, TakesWhatItTookOnAnH200) {
  struct Case {
    const char *model, *backend;
    ImageSize size;
    std::size_t images;
    double milliseconds;
  };
  for (const Case& c : {Case{"qwen2.5-vl-7b", "fa3", {448, 448}, 1, 26.18},
                        {"qwen2.5-vl-7b", "fa3", {1920, 1080}, 1, 43.00},
                        {"qwen2.5-vl-7b", "triton_attn", {1920, 1080}, 4, 205.1},
                        {"qwen2.5-vl-7b", "sdpa", {1920, 1080}, 1, 729.2},
                        {"qwen3-vl-8b", "fa3", {1920, 1080}, 1, 43.02},
                        {"qwen3-vl-8b", "triton_attn", {1920, 1080}, 1, 201.8},
                        {"gemma-3-27b", "fa3", {896, 896}, 4, 68.50},
                        {"gemma-3-27b", "triton_attn", {896, 896}, 1, 57.91},
                        {"internvl3.5-8b", "fa3", {800, 600}, 2, 53.79}}) {
    const std::vector<ImageSize> images(c.images, c.size);
    EXPECT_NEAR(1e3 * encoder(c.model, {}, c.backend).encode(images).seconds, c.milliseconds,
                0.12 * c.milliseconds)
        << c.model << " " << c.backend;
  }
}

TEST(VisionEncoder, EmbeddingsAreOfTheTextModelsWidth) {
  EXPECT_EQ(encoder("gemma-3-27b", {}).embedding_bytes({100, 100}), 256U * 5376 * 2);
  EXPECT_EQ(encoder("qwen3-vl-8b", {}).embedding_bytes({1024, 1024}), 1024U * 4096 * 2 * 4);
}

}  // namespace
}  // namespace tpsim::rank
