// The cost of capturing decode: against the servers of shared/data/serving (skipped without them), and as its
// source says it grows.
#include "rank/llm/graph_capture.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/selection/registry.h"
#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/llm/memory.h"
#include "rank/llm/modeled_forward.h"

namespace tpsim::rank {
namespace {

GraphCapture cost(const std::string& name, std::uint32_t tp, const std::vector<std::uint32_t>& sizes,
                  const std::string& backend = "fa3") {
  const ModelConfig model = load_model_config(name);
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  ModeledForward forward(model, hardware, make_shard(model, tp, 0),
                         attention::create_attention_backend(backend, hardware, 1),
                         ModeledForward::Options{});
  return graph_capture_cost(model, sizes, forward, load_host("h200-sxm").graph_capture());
}

TEST(GraphCapture, MemoryIsWhatServersReport) {
  const std::filesystem::path servers =
      std::filesystem::path(TPSIM_SOURCE_DIR) / "../shared/data/serving/servers.jsonl";
  if (!std::filesystem::exists(servers)) GTEST_SKIP() << servers << " is not here";
  std::ifstream stream(servers);
  int compared = 0;
  for (std::string line; std::getline(stream, line);) {
    const nlohmann::json server = nlohmann::json::parse(line);
    const double measured = server["memory_usage_gb"]["graph"].get<double>();
    const std::string name = server["model_path"];
    if (measured == 0 || name.starts_with("deepseek")) continue;  // nothing captured; MLA's workspaces
    const GraphCapture capture =
        cost(name, server["tp_size"], capture_batch_sizes(server["cuda_graph_max_bs"].get<std::uint32_t>()),
             server["attention_backend"]);
    EXPECT_NEAR(static_cast<double>(capture.bytes) / 1e9, measured, 0.2 * measured) << line;
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

// As a real SGLang 0.5.12 server on an H200 logs it.
TEST(GraphCapture, TimeIsWhatAServerLogs) {
  EXPECT_NEAR(cost("llama-3.1-8b", 1, capture_batch_sizes(256)).seconds, 4.78, 0.4);
}

TEST(GraphCapture, GrowsWithSizesAndLayers) {
  const std::vector<std::uint32_t> few = {1, 2, 4};
  const GraphCapture small = cost("llama-3.1-8b", 1, few);
  const GraphCapture more = cost("llama-3.1-8b", 1, capture_batch_sizes(256));
  const GraphCapture deep = cost("llama-3.1-70b", 8, few);
  EXPECT_GT(small.seconds, 0);
  EXPECT_GT(more.seconds, 10 * small.seconds);  // 36 sizes
  EXPECT_GT(more.bytes, small.bytes);
  EXPECT_GT(deep.seconds, 2 * small.seconds);  // 80 layers instead of 32
  EXPECT_EQ(cost("llama-3.1-8b", 1, {}).bytes, 0u);
}

}  // namespace
}  // namespace tpsim::rank
