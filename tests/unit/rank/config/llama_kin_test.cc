// Families that are Llama but for a few switches: what their configs say, and what is refused of them by
// name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "rank/catalogue/catalogue.h"
#include "rank/config/model_config.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

ModelConfig read(const std::string& name, const Json& changes) {
  Json json = Json::parse(*catalogue::find("models", name));
  json.merge_patch(changes);
  return parse_model_config(json.dump(), "config.json");
}
std::string refused(const std::string& name, const Json& changes) {
  return refusal([&] { read(name, changes); });
}

TEST(LlamaKin, KeysThatAreNotSimulatedAreRefusedByName) {
  for (const auto& [name, key, value] :
       {std::tuple<const char*, const char*, Json>{"granite-4.0-h-small", "mamba_n_groups", 8},
        {"granite-4.0-h-small", "mamba_proj_bias", true},
        {"granite-3.3-8b", "num_local_experts", 4},
        {"olmoe-1b-7b-0125", "clip_qkv", 8.0},
        {"exaone-4.0-32b", "sliding_window_pattern", "LGLG"},
        {"qwen1.5-moe-a2.7b", "use_sliding_window", true},
        {"stablelm-2-1_6b", "qk_layernorm", true},
        {"stablelm-2-1_6b", "use_parallel_residual", true},
        {"internlm2_5-7b", "bias", true},
        {"trinity-mini", "score_func", "softmax"}})
    EXPECT_THAT(refused(name, {{key, value}}), HasSubstr(key)) << name;
}

// MiniCPM says in its own way what Granite's multipliers say.
TEST(LlamaKin, MultipliersOfMiniCpm) {
  const ModelConfig model = load_model_config("minicpm-2b-sft-bf16");
  EXPECT_DOUBLE_EQ(model.embedding_scale, 12);
  EXPECT_DOUBLE_EQ(model.residual_scale, 1.4 / std::sqrt(40));
  EXPECT_DOUBLE_EQ(model.logit_scale, 256 / 2304.0);
}

TEST(LlamaKin, LayersThatSeeEverythingAreNotRotated) {
  for (const char* name :
       {"exaone-4.0-32b", "c4ai-command-r7b-12-2024", "trinity-mini", "k-exaone-236b-a23b"}) {
    const ModelConfig model = load_model_config(name);
    for (std::uint32_t i = 0; i < model.num_layers; ++i) {
      EXPECT_EQ(model.layers[i].sliding_window == 0, i % 4 == 3) << name << " " << i;
      EXPECT_EQ(model.layers[i].rope == LayerConfig::kNoRope, i % 4 == 3) << name << " " << i;
    }
  }
}

TEST(LongRope, FactorsFollowFromLengthsAndMustFitTheHeads) {
  Json rope = {{"type", "longrope"}, {"short_factor", Json::array()}, {"long_factor", Json::array()}};
  for (int i = 0; i < 48; ++i)
    for (const char* key : {"short_factor", "long_factor"}) rope[key].push_back(1 + i);
  const Json keys = {{"rope_scaling", rope},
                     {"hidden_size", 3072},
                     {"num_attention_heads", 24},
                     {"num_key_value_heads", 8},
                     {"partial_rotary_factor", 0.75},
                     {"max_position_embeddings", 131072},
                     {"original_max_position_embeddings", 4096}};
  const ModelConfig model = read("phi-4", keys);
  EXPECT_EQ(model.context_length, 131072U);
  EXPECT_DOUBLE_EQ(model.ropes.front().attention_factor, std::sqrt(1 + std::log(32) / std::log(4096)));
  Json whole = keys;
  whole["partial_rotary_factor"] = 1.0;
  EXPECT_THAT(refused("phi-4", whole), HasSubstr("short_factor"));
}

}  // namespace
}  // namespace tpsim::rank
