#include "rank/config/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rank/llm/layers.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;

TEST(Shard, QueryHeadsAreSplitWithoutGaps) {
  const ModelConfig model = load_model_config("llama-3.1-70b");
  for (const std::uint32_t tp : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
    std::uint32_t next = 0;
    for (std::uint32_t r = 0; r < tp; ++r) {
      const Shard shard = make_shard(model, tp, r);
      EXPECT_EQ(shard.q_heads.first, next);
      next = shard.q_heads.last + 1;
      // A query head finds the KV head of its group on its own rank.
      const std::uint32_t group = model.num_attention_heads / model.num_key_value_heads;
      EXPECT_EQ(shard.kv_heads.first, shard.q_heads.first / group);
      EXPECT_EQ(shard.kv_heads.last, shard.q_heads.last / group);
    }
    EXPECT_EQ(next, 64U);
  }
}

TEST(Shard, KvHeadsAreReplicatedBeyondTheirNumber) {
  const ModelConfig model = load_model_config("qwen3-30b-a3b");  // 4 KV heads
  EXPECT_EQ(make_shard(model, 8, 0).kv_heads.first, 0U);
  EXPECT_EQ(make_shard(model, 8, 1).kv_heads.first, 0U);
  EXPECT_EQ(make_shard(model, 8, 7).kv_heads.first, 3U);
  EXPECT_EQ(make_shard(model, 8, 7).kv_heads.count(), 1U);
  EXPECT_EQ(kv_bytes_per_token(model, make_shard(model, 8, 0), NumberFormat::kBf16),
            kv_bytes_per_token(model, make_shard(model, 4, 0), NumberFormat::kBf16));
}

TEST(Shard, RefusalsSayWhatWouldDo) {
  const ModelConfig model = load_model_config("llama-3.1-70b");
  EXPECT_THAT(
      refusal([&] { make_shard(model, 3, 0); }),
      HasSubstr("--tp 3 does not divide the 64 attention heads of llama-3.1-70b; use 1, 2, 4, 8, 16"));
  EXPECT_THAT(refusal([&] { make_shard(model, 0, 0); }), HasSubstr("--tp 0"));
  ModelConfig odd = model;
  odd.num_attention_heads = 12;
  odd.num_key_value_heads = 4;
  EXPECT_THAT(refusal([&] { make_shard(odd, 6, 0); }), HasSubstr("use 1, 2, 4, 12"));
  odd = model;
  odd.intermediate_size = 28670;
  EXPECT_THAT(refusal([&] { make_shard(odd, 4, 0); }), HasSubstr("MLP width 28670"));
  odd = load_model_config("qwen3-30b-a3b");
  odd.moe.intermediate_size = 770;
  EXPECT_THAT(refusal([&] { make_shard(odd, 4, 0); }), HasSubstr("expert width 770"));
}

// The published numbers of parameters.
TEST(Shard, WeightBytesAreThePublishedParameters) {
  const auto parameters = [](const char* name) {
    const ModelConfig model = load_model_config(name);
    return static_cast<double>(num_parameters(model, make_shard(model, 1, 0)));
  };
  EXPECT_NEAR(parameters("llama-3.1-8b"), 8030261248.0, 1e6);
  EXPECT_NEAR(parameters("llama-3.1-70b"), 70553706496.0, 1e7);
  EXPECT_NEAR(parameters("qwen3-8b"), 8.19e9, 2e7);
  EXPECT_NEAR(parameters("qwen3-32b"), 32.76e9, 2e7);
  EXPECT_NEAR(parameters("qwen3-30b-a3b"), 30.53e9, 2e7);
  EXPECT_NEAR(parameters("mistral-7b"), 7248023552.0, 1e6);
  // As their makers' cards and reports say, text models only: Gemma 3's and Mistral Small's encoders have
  // 0.42 and 0.44 billion more, Scout's 0.8; the draft layers of DeepSeek, GLM and Qwen3.5 are not counted.
  for (const auto& [name, published] : {std::pair("deepseek-v2-lite", 15.7e9),
                                        {"deepseek-v3", 671e9},
                                        {"deepseek-r1", 671e9},
                                        {"deepseek-v3.2", 671.9e9},
                                        {"glm-5", 744e9},
                                        {"glm-4.5-air", 106.9e9},
                                        {"kimi-k2", 1026.5e9},
                                        {"gpt-oss-20b", 20.9e9},
                                        {"gpt-oss-120b", 116.8e9},
                                        {"qwen3-235b-a22b", 235.1e9},
                                        {"qwen3.5-397b-a17b", 396.3e9},
                                        {"llama-4-scout", 107.8e9},
                                        {"llama-3.3-70b", 70.55e9},
                                        {"gemma-3-27b", 27.0e9},
                                        {"mistral-small", 23.57e9},
                                        {"phi-4", 14.66e9},
                                        {"meta-llama/Llama-2-7b-chat-hf", 6.738e9},
                                        {"meta-llama/Llama-2-13b-chat-hf", 13.016e9},
                                        {"meta-llama/Llama-2-70b-chat-hf", 68.977e9},
                                        {"codellama/CodeLlama-34b-Instruct-hf", 33.744e9},
                                        {"meta-llama/Meta-Llama-3-8B-Instruct", 8.03e9},
                                        {"meta-llama/Llama-3.2-1B-Instruct", 1.236e9},
                                        {"Qwen/Qwen2.5-0.5B-Instruct", 0.494e9},
                                        {"Qwen/Qwen2.5-1.5B-Instruct", 1.544e9},
                                        {"Qwen/Qwen2.5-3B-Instruct", 3.086e9},
                                        {"Qwen/Qwen2.5-14B-Instruct", 14.77e9},
                                        {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.777e9},
                                        {"google/gemma-2-2b-it", 2.614e9},
                                        {"google/gemma-2-9b-it", 9.242e9},
                                        {"google/gemma-2-27b-it", 27.227e9},
                                        {"google/gemma-3-4b-it", 3.88e9},
                                        {"google/gemma-3-12b-it", 11.766e9},
                                        {"mistralai/Mistral-Nemo-Instruct-2407", 12.248e9},
                                        {"mistralai/Mixtral-8x22B-Instruct-v0.1", 140.63e9},
                                        {"microsoft/Phi-3-mini-4k-instruct", 3.821e9},
                                        {"01-ai/Yi-34B-Chat", 34.389e9},
                                        {"HuggingFaceTB/SmolLM2-1.7B-Instruct", 1.711e9}}) {
    EXPECT_NEAR(parameters(name) / published, 1, 0.01) << name << " " << parameters(name);
  }
}

// Of the others of the catalogue, what their names and cards say, which round more.
TEST(Shard, NamesAndCardsSayTheParameters) {
  for (const auto& [name, published] : {std::pair("gemma-4-31b", 30.7e9),
                                        {"gemma-4-26b-a4b", 25.2e9},
                                        {"gemma-4-12b", 12.0e9},
                                        {"kimi-linear-48b-a3b", 49.1e9},
                                        {"kimi-k3", 2.8e12},
                                        {"deepseek-v4-flash", 284e9},
                                        {"deepseek-v4-pro", 1.6e12},
                                        {"lfm2.5-230m", 230e6},
                                        {"lfm2.5-350m", 354e6},
                                        {"lfm2.5-1.2b", 1.17e9},
                                        {"lfm2.5-8b-a1b", 8.34e9},
                                        {"step-3.5-flash", 196.8e9},
                                        {"minimax-m2", 228.7e9},
                                        {"minimax-m3", 428e9},
                                        {"glm-4.7-flash", 30e9},
                                        {"qwen3.5-27b", 27e9},
                                        {"qwen3.5-9b", 9e9},
                                        {"qwen3.5-122b-a10b", 122e9},
                                        {"qwen3.5-35b-a3b", 35e9},
                                        {"meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400e9},
                                        {"qwen3-14b", 14.8e9},
                                        {"kimi-k2.5", 1026e9}}) {
    const ModelConfig model = load_model_config(name);
    const auto parameters = static_cast<double>(num_parameters(model, make_shard(model, 1, 0)));
    EXPECT_NEAR(parameters / published, 1, 0.03) << name << " " << parameters;
  }
}

TEST(Shard, RanksTogetherHoldTheModelOnce) {
  const ModelConfig model = load_model_config("llama-3.1-70b");
  const std::uint64_t whole = weight_bytes(model, make_shard(model, 1, 0));
  std::uint64_t sum = 0;
  for (std::uint32_t r = 0; r < 8; ++r) sum += weight_bytes(model, make_shard(model, 8, r));
  EXPECT_GT(sum, whole);  // norms are on every rank, the vocabulary is padded
  EXPECT_LT(static_cast<double>(sum), static_cast<double>(whole) * 1.001);
  EXPECT_EQ(kv_bytes_per_token(model, make_shard(model, 8, 0), NumberFormat::kBf16), 2U * 1 * 128 * 80 * 2);
  EXPECT_EQ(kv_bytes_per_token(model, make_shard(model, 1, 0), NumberFormat::kFp8E4M3), 2U * 8 * 128 * 80);
}

TEST(Shard, VocabularyIsPadded) {
  ModelConfig model = load_model_config("llama-3.1-8b");
  EXPECT_EQ(make_shard(model, 8, 0).vocab, 128256U / 8);
  model.vocab_size = 32001;
  EXPECT_EQ(make_shard(model, 1, 0).vocab, 32064U);
  EXPECT_EQ(make_shard(model, 4, 0).vocab * 4 % 64, 0U);
  EXPECT_GE(make_shard(model, 4, 0).vocab * 4, 32001U);
}

TEST(Shard, LinearLayersCoverDenseAndSparseLayers) {
  ModelConfig model = load_model_config("qwen3-30b-a3b");
  model.moe.num_layers = 40;
  std::uint32_t gate = 0, dense = 0;
  for (const WeightSpec& weight : weight_list(model, make_shard(model, 2, 0))) {
    if (weight.name == "gate") gate = weight.layers;
    if (weight.name == "down_proj") dense = weight.layers;
  }
  EXPECT_EQ(gate, 40U);
  EXPECT_EQ(dense, 8U);
}

TEST(Shard, WholeExpertsNeedNotBeDivisible) {
  ModelConfig model = load_model_config("qwen3-30b-a3b");
  const double parts = static_cast<double>(weight_bytes(model, make_shard(model, 4, 0)));
  EXPECT_EQ(static_cast<double>(weight_bytes(model, make_shard(model, 4, 0, 4))), parts);
  model.moe.intermediate_size = 770;
  EXPECT_THAT(refusal([&] { make_shard(model, 4, 0); }),
              HasSubstr("--tp 4 does not divide the expert width 770"));
  EXPECT_EQ(make_shard(model, 4, 3, 4).ep_size, 4U);
  model.moe.num_experts = 126;
  EXPECT_THAT(refusal([&] { make_shard(model, 4, 0, 4); }),
              HasSubstr("--ep-size 4: does not divide the 126 experts"));
  EXPECT_THAT(refusal([] { make_shard(load_model_config("qwen3-8b"), 4, 0, 4); }),
              HasSubstr("has no experts"));
}

}  // namespace
}  // namespace tpsim::rank
