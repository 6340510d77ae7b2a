// What sparse backends are told, against SGLang's own code (tests/references/record_diffusion_selections.py).
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/diffusion/mask_strategy.h"
#include "attention/diffusion/parameters.h"
#include "attention/diffusion/selection/diffusion_attention.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention {
namespace {

using Json = nlohmann::json;

int for_recorded(const std::string& backend, const std::function<void(const Json&)>& check) {
  std::ifstream file(TPSIM_SOURCE "/tests/references/diffusion_selections.jsonl");
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    if (json.at("backend") != backend) continue;
    check(json);
    ++count;
  }
  return count;
}

TEST(Recorded, WindowsOfSlidingTiles) {
  const int files = for_recorded("sliding_tile_attn", [](const Json& one) {
    const MaskStrategy strategy = parse_mask_strategy(one.at("file").dump(), "windows.json");
    std::vector<GridSize> wanted;
    for (const Json& step : one.at("windows")) {
      for (const Json& layer : step) {
        for (const Json& window : layer) wanted.push_back(window.get<GridSize>());
      }
    }
    EXPECT_EQ(strategy.windows, wanted);
  });
  EXPECT_EQ(files, 1);
}

TEST(Recorded, FullStepsAndLayersOfSemanticClusters) {
  const DiffusionBackend& backend = find_diffusion_backend("--attention-backend", "sparse_video_gen_2_attn");
  const proto::HardwareProfile profile = rank::load_hardware("h100-sxm");
  const int runs = for_recorded("sparse_video_gen_2_attn", [&](const Json& one) {
    SCOPED_TRACE(one.dump());
    const DiffusionAttention attention(profile, backend,
                                       read_diffusion_parameters(backend, one.at("config").dump()));
    DiffusionCall call{.queries = 1000, .keys = 1000, .heads = 8, .head_dim = 128, .grid = {10, 10, 10}};
    call.steps = one.at("steps").get<std::uint32_t>();
    call.layers = one.at("layers").get<std::uint32_t>();
    std::vector<std::uint32_t> full(call.steps);
    for (call.step = 0; call.step < call.steps; ++call.step) {
      for (call.layer = 0; call.layer < call.layers; ++call.layer)
        full[call.step] += static_cast<std::uint32_t>(attention.share(call) == 1);
    }
    EXPECT_EQ(full, one.at("full").get<std::vector<std::uint32_t>>());
  });
  EXPECT_EQ(runs, 12);
}

// The kernel takes half a window on either side: an even one is one tile wider.
TEST(Recorded, EvenWindowsAreATileWider) {
  const MaskStrategy strategy = parse_mask_strategy(R"({"0_0_0": [3, 4, 10], "0_0_1": [1, 5, 9]})", "w");
  EXPECT_DOUBLE_EQ(strategy.share(0, 0, {3, 6, 10}), (5 / 6.0 + 1 / 3.0 * 5 / 6 * 0.9) / 2);
}

}  // namespace
}  // namespace tpsim::attention
