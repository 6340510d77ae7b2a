#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/images.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

ImageHost host(const std::string& model, std::uint32_t width, std::uint32_t height, std::size_t count) {
  const std::vector<scheduler::ImageInput> images(count, {.width = width, .height = height});
  static const proto::HostProfile::Images constants = rank::load_host("h200-sxm").images();
  return image_host(rank::load_model_config(model).vision, constants, images);
}

TEST(ImageHost, MoreAndLargerImagesTakeLonger) {
  for (const std::string model :
       {"qwen2.5-vl-7b", "qwen3-vl-8b", "internvl3.5-8b", "gemma-3-27b", "llama-4-scout"}) {
    EXPECT_EQ(host(model, 100, 100, 0).prepare_seconds, 0);
    EXPECT_EQ(host(model, 100, 100, 0).receive_seconds, 0);
    double prepare = 0, receive = 0;
    for (std::size_t count = 1; count <= 8; ++count) {
      const ImageHost now = host(model, 1280, 720, count);
      EXPECT_GT(now.prepare_seconds, prepare) << model << count;
      EXPECT_GT(now.receive_seconds, receive) << model << count;
      prepare = now.prepare_seconds;
      receive = now.receive_seconds;
    }
    EXPECT_GE(host(model, 1920, 1080, 1).prepare_seconds, host(model, 1280, 720, 1).prepare_seconds) << model;
  }
}

// Clocks of real servers: from the tokenizer process's taking of a request to its sending on, in milliseconds
// (run by 3 to 5 requests each), and the scheduler's copy and hash.
TEST(ImageHost, TakesWhatItTookBesideAnH200) {
  struct Case {
    const char* model;
    std::uint32_t width, height;
    std::size_t count;
    double prepare, receive;
  };
  for (const Case& c : {Case{"qwen2.5-vl-7b", 448, 448, 1, 18.0, 5.4},
                        {"qwen2.5-vl-7b", 1920, 1080, 1, 75.8, 66.7},
                        {"qwen2.5-vl-7b", 1280, 720, 4, 129.5, 126},
                        {"qwen3-vl-8b", 1920, 1080, 1, 77.5, 67.6},
                        {"qwen3-vl-30b-a3b", 1600, 1200, 1, 66.8, 62.6},
                        {"gemma-3-27b", 1280, 720, 1, 19.6, 12.5}}) {
    const ImageHost now = host(c.model, c.width, c.height, c.count);
    EXPECT_NEAR(1e3 * now.prepare_seconds, c.prepare, 0.2 * c.prepare) << c.model << " " << c.width;
    EXPECT_NEAR(1e3 * now.receive_seconds, c.receive, 0.2 * c.receive) << c.model << " " << c.width;
  }
}

}  // namespace
}  // namespace tpsim::launch
