// Which keys a sparse backend meets, against SGLang's own code
// (tests/references/record_diffusion_selections.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/diffusion/parameters.h"
#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "rank/numeric/diffusion/head_attention.h"
#include "rank/numeric/diffusion/seeded_tensor.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;

std::vector<Json> recorded(const std::string& backend) {
  std::ifstream file(TPSIM_SOURCE "/tests/references/diffusion_selections.jsonl");
  std::vector<Json> out;
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line);
    if (json.at("backend") == backend) out.push_back(std::move(json));
  }
  EXPECT_FALSE(out.empty()) << backend;
  return out;
}

std::vector<std::uint8_t> selected(const std::string& name, const Json& config, HeadCall call,
                                   std::uint64_t seed) {
  const auto& backend = attention::find_diffusion_backend("--attention-backends", name);
  const attention::DiffusionParameters parameters =
      attention::read_diffusion_parameters(backend, config.dump());
  const std::uint32_t tokens = call.grid[0] * call.grid[1] * call.grid[2];
  const std::size_t count = std::size_t{tokens} * call.dim;
  const std::vector<float> q = seeded_tensor("q", seed, count), k = seeded_tensor("k", seed, count);
  call.q = {q.data(), tokens, call.dim};
  call.k = {k.data(), tokens, call.dim};
  return find_head_backend("--attention-backends", name).select(call, parameters);
}

TEST(Selections, OfChunksAndBlocksAreSGLangs) {
  for (const std::string name : {"vmoba_attn", "sla_attn"}) {
    for (const Json& one : recorded(name)) {
      SCOPED_TRACE(one.at("config").dump());
      HeadCall call;
      call.grid = one.at("grid").get<attention::GridSize>();
      call.dim = one.at("dim").get<std::uint32_t>();
      call.layer = one.at("layer").get<std::uint32_t>();
      const std::vector<std::uint8_t> met =
          selected(name, one.at("config"), call, one.at("seed").get<std::uint64_t>());
      const auto groups = one.at("groups").get<std::vector<std::uint32_t>>();
      std::size_t at = 0, differ = 0;
      for (const Json& row : one.at("meets")) {
        std::string bits = row.get<std::string>();
        std::ranges::reverse(bits);  // four groups a digit, the first of them lowest
        for (const std::uint32_t group : groups) {
          const bool wanted = group / 4 < bits.size() &&
                              (std::stoul(bits.substr(group / 4, 1), nullptr, 16) >> group % 4 & 1) != 0;
          differ += static_cast<std::size_t>(wanted != (met[at++] != 0));
        }
      }
      EXPECT_EQ(at, met.size());
      EXPECT_EQ(differ, 0U);
    }
  }
}

// SGLang gives tiles and how many; what scores them is another package's.
TEST(Selections, OfTilesHaveSGLangsTilesAndNumber) {
  for (const Json& one : recorded("video_sparse_attn")) {
    HeadCall call;
    call.grid = one.at("grid").get<attention::GridSize>();
    call.dim = 8;
    const std::vector<std::uint8_t> met =
        selected("video_sparse_attn", {{"sparsity", one.at("sparsity")}}, call, /*seed=*/1);
    const auto tiles = one.at("groups").get<std::vector<std::uint32_t>>();
    for (std::size_t query = 0; query < tiles.size(); ++query) {
      std::vector<std::int32_t> meets(*std::ranges::max_element(tiles) + 1, -1);
      for (std::size_t key = 0; key < tiles.size(); ++key) {
        const std::int32_t here = met[query * tiles.size() + key];
        EXPECT_TRUE(meets[tiles[key]] == -1 || meets[tiles[key]] == here);
        meets[tiles[key]] = here;
      }
      EXPECT_EQ(std::ranges::count(meets, 1), one.at("topk").get<std::ptrdiff_t>());
    }
  }
}

TEST(Selections, OfEarlyStepsAndLayersAreAll) {
  const Json config = {{"temporal_chunk_size", 1},     {"temporal_topk", 1},
                       {"spatial_chunk_size", {2, 2}}, {"spatial_topk", 1},
                       {"st_chunk_size", {1, 2, 2}},   {"st_topk", 1},
                       {"first_full_step", 3},         {"first_full_layer", 2}};
  const auto kept = [&](std::uint32_t step, std::uint32_t layer) {
    HeadCall call;
    call.grid = {2, 4, 4};
    call.dim = 4;
    call.step = step;
    call.layer = layer;
    return std::ranges::count(selected("vmoba_attn", config, call, 1), 1);
  };
  EXPECT_EQ(kept(2, 5), 32 * 32);
  EXPECT_EQ(kept(3, 1), 32 * 32);
  EXPECT_LT(kept(3, 2), 32 * 32);
}

TEST(Selections, OverAllHeadsAndOfOddSizesAreRefused) {
  const auto refused = [](const char* type, std::uint32_t rows) {
    const Json config = {{"temporal_chunk_size", 1},     {"temporal_topk", 1},
                         {"spatial_chunk_size", {2, 2}}, {"spatial_topk", 1},
                         {"st_chunk_size", {1, 2, 2}},   {"st_topk", 1},
                         {"moba_threshold_type", type},  {"first_full_step", 0}};
    HeadCall call;
    call.grid = {2, rows, 4};
    call.dim = 4;
    call.layer = 1;
    try {
      selected("vmoba_attn", config, call, 1);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("query_head", 4), "");
  EXPECT_NE(refused("overall", 4).find("over all heads"), std::string::npos);
  EXPECT_NE(refused("query_head", 5).find("spatial_chunk_size has 2 rows"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::rank
