// Models of the catalogue against what their cards say: parameters, those a token meets, KV bytes of a token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "rank/catalogue/catalogue.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/layers.h"
#include "rank/llm/linear_attention_cost.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Card {
  const char* name;      // of the hub
  double total, active;  // billions
  std::uint64_t kv;     // bytes of a token in 16 bit: 2 x layers with keys x heads x elements x 2, or latents
  std::uint64_t state;  // bytes of a request in its linear layers
};

// That a token meets: of routed experts those that it goes to. Cards count embedding and head, or one, or
// neither.
double active_billions(const ModelConfig& model, bool vocabulary) {
  double parameters = 0;
  for (const WeightSpec& weight : weight_list(model, make_shard(model, 1, 0))) {
    if (weight.sharding == Sharding::kVocabulary && !vocabulary) continue;
    double copies = static_cast<double>(weight.copies());
    if (weight.part == ModelPart::kExperts) copies *= double(model.moe.top_k) / model.moe.num_experts;
    parameters += (double(weight.k) * double(weight.n) + double(weight.bias)) * copies;
  }
  return parameters / 1e9;
}

class ModelCards : public ::testing::TestWithParam<Card> {};

TEST_P(ModelCards, SayWhatTheCatalogueHas) {
  const Card& card = GetParam();
  const ModelConfig model = load_model_config(card.name);
  const Shard whole = make_shard(model, 1, 0);
  EXPECT_NEAR(double(num_parameters(model, whole)) / 1e9, card.total, 0.015 * card.total);
  EXPECT_GT(card.active, 0.97 * active_billions(model, false));
  EXPECT_LT(card.active, 1.03 * active_billions(model, true));
  EXPECT_EQ(kv_bytes_per_token(model, whole, NumberFormat::kBf16), card.kv);
  EXPECT_EQ(linear_layers(model, whole).bytes_per_request(), card.state);
}

constexpr std::uint64_t of_heads(std::uint64_t layers, std::uint64_t heads, std::uint64_t k,
                                 std::uint64_t v) {
  return layers * heads * (k + v) * 2;
}
INSTANTIATE_TEST_SUITE_P(
    Catalogue, ModelCards,
    ::testing::Values(
        Card{"XiaomiMiMo/MiMo-V2-Flash", 309, 15, of_heads(9, 4, 192, 128) + of_heads(39, 8, 192, 128), 0},
        Card{"XiaomiMiMo/MiMo-V2.5-Pro", 1020, 42, of_heads(70, 8, 192, 128), 0},
        Card{"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6, 3.2, of_heads(6, 2, 128, 128),
             23 * ((64 * 64 + 2 * 8 * 128) * 3 * 2 + 64 * 64 * 128 * 4)},
        Card{"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 120.6, 12.1, of_heads(8, 2, 128, 128),
             40 * ((128 * 64 + 2 * 8 * 128) * 3 * 2 + 128 * 64 * 128 * 4)},
        Card{"inclusionAI/Ring-2.6-1T", 1010, 63, 10 * (512 + 64) * 2, 70ULL * 64 * 128 * 128 * 4},
        Card{"inclusionAI/Ling-1T", 1000, 50, of_heads(80, 8, 128, 128), 0},
        Card{"inclusionAI/Ling-flash-2.0", 103, 6.1, of_heads(32, 4, 128, 128), 0},
        Card{"inclusionAI/Ling-mini-2.0", 16.3, 1.4, of_heads(20, 4, 128, 128), 0},
        Card{"poolside/Laguna-M.1", 225, 23, of_heads(70, 8, 128, 128), 0},
        Card{"poolside/Laguna-XS.2", 33, 3, of_heads(40, 8, 128, 128), 0},
        Card{"baidu/ERNIE-4.5-300B-A47B-PT", 300, 47, of_heads(54, 8, 128, 128), 0},
        Card{"baidu/ERNIE-4.5-21B-A3B-PT", 21.8, 3, of_heads(28, 4, 128, 128), 0},
        Card{"baidu/ERNIE-4.5-0.3B-PT", 0.36, 0.36, of_heads(18, 2, 128, 128), 0},
        Card{"tencent/Hunyuan-A13B-Instruct", 80, 13, of_heads(32, 8, 128, 128), 0},
        Card{"tencent/Hunyuan-7B-Instruct", 7.5, 7.5, of_heads(32, 8, 128, 128), 0},
        Card{"tencent/Hy3-preview", 295, 20.6, of_heads(80, 8, 128, 128), 0},
        Card{"mistralai/Mistral-Small-4-119B-2603", 119, 6.5, 36 * (256 + 64) * 2, 0},
        Card{"mistralai/Mistral-Medium-3.5-128B", 125, 123, of_heads(88, 8, 128, 128), 0},
        Card{"deepseek-ai/DeepSeek-OCR-2", 2.93, 0.6, of_heads(12, 10, 128, 128), 0},
        Card{"ibm-granite/granite-3.3-8b-instruct", 8.17, 8.17, of_heads(40, 8, 128, 128), 0},
        Card{"ibm-granite/granite-3.1-3b-a800m-instruct", 3.3, 0.88, of_heads(32, 8, 64, 64), 0},
        Card{"ibm-granite/granite-4.0-h-small", 32.2, 9, of_heads(4, 8, 128, 128),
             36 * ((128 * 64 + 2 * 128) * 3 * 2 + 128 * 64 * 128 * 4)},
        Card{"ibm-granite/granite-4.0-h-tiny", 6.94, 1.3, of_heads(4, 4, 128, 128),
             36 * ((48 * 64 + 2 * 128) * 3 * 2 + 48 * 64 * 128 * 4)},
        Card{"ibm-granite/granite-4.0-h-micro", 3.19, 3.19, of_heads(4, 8, 64, 64),
             36 * ((64 * 64 + 2 * 128) * 3 * 2 + 64 * 64 * 128 * 4)},
        Card{"allenai/OLMo-2-0325-32B-Instruct", 32.2, 32.2, of_heads(64, 8, 128, 128), 0},
        Card{"allenai/Olmo-3-7B-Instruct", 7.3, 7.3, of_heads(32, 32, 128, 128), 0},
        Card{"allenai/OLMoE-1B-7B-0125-Instruct", 6.92, 1.3, of_heads(16, 16, 128, 128), 0},
        Card{"CohereForAI/c4ai-command-r-v01", 35, 35, of_heads(40, 64, 128, 128), 0},
        Card{"CohereLabs/c4ai-command-r-plus-08-2024", 104, 104, of_heads(64, 8, 128, 128), 0},
        Card{"CohereLabs/c4ai-command-r7b-12-2024", 8.03, 8.03, of_heads(32, 8, 128, 128), 0},
        Card{"CohereLabs/c4ai-command-a-03-2025", 111, 111, of_heads(64, 8, 128, 128), 0},
        Card{"THUDM/glm-4-9b-chat", 9.4, 9.4, of_heads(40, 2, 128, 128), 0},
        Card{"microsoft/Phi-3.5-MoE-instruct", 41.9, 6.6, of_heads(32, 8, 128, 128), 0},
        Card{"mistralai/Ministral-3-8B-Instruct-2512", 8.5, 8.5, of_heads(34, 8, 128, 128), 0},
        Card{"mistralai/Ministral-3-14B-Instruct-2512", 13.5, 13.5, of_heads(40, 8, 128, 128), 0},
        Card{"THUDM/GLM-4-9B-0414", 9.4, 9.4, of_heads(40, 2, 128, 128), 0},
        Card{"zai-org/GLM-4-32B-0414", 32.6, 32.6, of_heads(61, 2, 128, 128), 0},
        Card{"LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct", 7.82, 7.82, of_heads(32, 8, 128, 128), 0},
        Card{"LGAI-EXAONE/EXAONE-4.0-32B", 32, 32, of_heads(64, 8, 128, 128), 0},
        Card{"LGAI-EXAONE/EXAONE-4.0-1.2B", 1.28, 1.28, of_heads(30, 8, 64, 64), 0},
        Card{"LGAI-EXAONE/K-EXAONE-236B-A23B", 236, 23, of_heads(48, 8, 128, 128), 0},
        Card{"arcee-ai/Trinity-Mini", 26, 3, of_heads(32, 4, 128, 128), 0},
        Card{"internlm/internlm2_5-20b-chat", 19.86, 19.86, of_heads(48, 8, 128, 128), 0},
        Card{"internlm/internlm3-8b-instruct", 8.8, 8.8, of_heads(48, 2, 128, 128), 0},
        Card{"Qwen/Qwen1.5-MoE-A2.7B-Chat", 14.3, 2.7, of_heads(24, 16, 128, 128), 0},
        Card{"Qwen/Qwen2-57B-A14B-Instruct", 57.4, 14, of_heads(28, 4, 128, 128), 0},
        Card{"XiaomiMiMo/MiMo-7B-RL", 7.61, 7.61, of_heads(36, 8, 128, 128), 0},
        Card{"google/gemma-7b-it", 8.54, 8.54, of_heads(28, 16, 256, 256), 0},
        Card{"deepseek-ai/deepseek-moe-16b-chat", 16.4, 2.8, of_heads(28, 16, 128, 128), 0},
        Card{"deepseek-ai/deepseek-coder-33b-instruct", 33.3, 33.3, of_heads(62, 8, 128, 128), 0},
        Card{"stabilityai/stablelm-2-1_6b-chat", 1.64, 1.64, of_heads(24, 32, 64, 64), 0},
        Card{"bigcode/starcoder2-15b", 15.96, 15.96, of_heads(40, 4, 128, 128), 0},
        Card{"openbmb/MiniCPM-2B-sft-bf16", 2.72, 2.72, of_heads(40, 36, 64, 64), 0},
        Card{"microsoft/Phi-4-mini-instruct", 3.84, 3.84, of_heads(32, 8, 128, 128), 0},
        Card{"zai-org/GLM-4.6", 355, 32, of_heads(92, 8, 128, 128), 0},
        Card{"moonshotai/Kimi-K2.6", 1026, 32, 61 * (512 + 64) * 2, 0},
        Card{"meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", 400, 17, of_heads(48, 8, 128, 128), 0}),
    [](const auto& info) {
      std::string name;
      for (const char* c = info.param.name; *c != 0; ++c)
        if (std::isalnum(static_cast<unsigned char>(*c)) != 0) name += *c;
      return name;
    });

TEST(ModelNames, OfTheHubResolve) {
  for (const char* name : {"Qwen/Qwen3.5-0.8B",
                           "Qwen/Qwen3.5-2B",
                           "Qwen/Qwen3.5-4B",
                           "Qwen/Qwen3.5-9B",
                           "Qwen/Qwen3.5-27B-FP8",
                           "Qwen/Qwen3.5-35B-A3B-FP8",
                           "Qwen/Qwen3.5-122B-A10B-FP8",
                           "Qwen/Qwen3.5-397B-A17B-FP8",
                           "nvidia/Qwen3.5-397B-A17B-NVFP4",
                           "Qwen/Qwen3.5-35B-A3B-GPTQ-Int4",
                           "Qwen/Qwen3.6-27B",
                           "Qwen/Qwen3.6-27B-FP8",
                           "Qwen/Qwen3.6-35B-A3B-FP8",
                           "nvidia/Qwen3.6-35B-A3B-NVFP4",
                           "QuantTrio/Qwen3.6-35B-A3B-AWQ",
                           "Qwen/Qwen3-Coder-Next",
                           "Qwen/Qwen3-Coder-Next-FP8",
                           "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8",
                           "Qwen/Qwen3-32B-AWQ",
                           "Qwen/Qwen3-4B-Instruct-2507",
                           "zai-org/GLM-4.6-FP8",
                           "zai-org/GLM-4.7",
                           "QuantTrio/GLM-4.7-AWQ",
                           "ZhipuAI/GLM-5",
                           "zai-org/GLM-5.1",
                           "zai-org/GLM-5.2-FP8",
                           "nvidia/GLM-5.2-NVFP4",
                           "nvidia/DeepSeek-V3.1-NVFP4",
                           "moonshotai/Kimi-K2.6",
                           "internlm/Intern-S1",
                           "internlm/Intern-S1-FP8",
                           "internlm/Intern-S1-mini",
                           "stepfun-ai/Step3-VL-10B",
                           "XiaomiMiMo/MiMo-V2.5",
                           "inclusionAI/Ring-flash-2.0",
                           "inclusionAI/Ring-2.5-1T",
                           "mistralai/Mistral-Small-4-119B-2603-NVFP4",
                           "mistralai/Devstral-2-123B-Instruct-2512"})
    EXPECT_EQ(refusal([&] { load_model_config(name); }), "") << name;
}

TEST(ModelNames, EndInTheFormatOfTheirWeights) {
  const auto bytes = [](const char* name) {
    const ModelConfig model = load_model_config(name);
    return double(weight_bytes(model, make_shard(model, 1, 0)));
  };
  EXPECT_NEAR(bytes("QuantTrio/GLM-4.7-AWQ") / bytes("zai-org/GLM-4.7"), 0.27, 0.02);
  EXPECT_NEAR(bytes("Qwen/Qwen3.5-35B-A3B-GPTQ-Int4") / bytes("Qwen/Qwen3.5-35B-A3B"), 0.29, 0.03);
  EXPECT_NEAR(bytes("Qwen/Qwen3.6-35B-A3B-FP8") / bytes("Qwen/Qwen3.6-35B-A3B"), 0.52, 0.03);
  EXPECT_NEAR(bytes("nvidia/DeepSeek-V3.1-NVFP4") / bytes("deepseek-ai/DeepSeek-V3.1"), 0.59, 0.03);
}

TEST(MimoV2, ProjectionsAreInterleavedForSomeRanks) {
  const ModelConfig model = load_model_config("XiaomiMiMo/MiMo-V2.5");
  EXPECT_THAT(refusal([&] { make_shard(model, 8, 0); }), HasSubstr("--dp-size 2"));
  EXPECT_EQ(model.swa_pool_window, 128U);
  EXPECT_EQ(model.layers[1].sliding_window, 129U);  // that many tokens, and the query
  const Shard shard = make_shard(model, 4, 0);
  // 16 queries and 1 key of 192 elements and a value of 128; the way back from 16 values.
  const std::vector<WeightSpec> weights = weight_list(model, shard);
  EXPECT_EQ(weight_named(weights, "qkv_proj").n, 17U * 192 + 128);
  EXPECT_EQ(weight_named(weights, "o_proj").k, 16U * 128);
  EXPECT_FALSE(weight_named(weights, "o_proj").format.quantized());
}

TEST(NemotronH, BlocksBecomeLayersThatAreBareWhereNoMlpFollows) {
  const ModelConfig model = load_model_config("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16");
  EXPECT_EQ(model.num_layers, 29U);
  EXPECT_EQ(model.num_bare_layers, 6U);
  EXPECT_EQ(model.moe.num_layers, 23U);
  EXPECT_EQ(model.num_dense_layers(), 0U);
  Json json = Json::parse(*catalogue::find("models", "nemotron-3-nano-30b-a3b"));
  const auto refused = [&] { return refusal([&] { parse_model_config(json.dump(), "config.json"); }); };
  json["hybrid_override_pattern"] = "ME*EE";
  EXPECT_THAT(refused(), HasSubstr("must stand behind"));
  json["hybrid_override_pattern"] = "MEX";
  EXPECT_THAT(refused(), HasSubstr("hybrid_override_pattern"));
  json["hybrid_override_pattern"] = "MEME";
  EXPECT_THAT(refused(), HasSubstr("both kinds"));
}

TEST(Hunyuan, SharedKeysAreRefusedByName) {
  Json json = Json::parse(*catalogue::find("models", "hunyuan-a13b"));
  json["use_cla"] = true;
  json["cla_share_factor"] = 2;
  EXPECT_THAT(refusal([&] { parse_model_config(json.dump(), "config.json"); }), HasSubstr("use_cla"));
}

// A step moves each state twice, and a prefill is bound by its arithmetic: both grow with what they do.
TEST(StateSpace, CostsGrowWithRequestsAndTokens) {
  for (const char* name : {"nemotron-3-super-120b-a12b", "ring-2.6-1t"}) {
    const ModelConfig model = load_model_config(name);
    const LinearLayers layers = linear_layers(model, make_shard(model, 4, 0));
    proto::HardwareProfile gpu;
    gpu.set_dense_flops_bf16(1e15);
    gpu.set_memory_bandwidth(4e12);
    gpu.set_multiprocessors(132);
    const GatedDeltaCosts costs(gpu);
    const KernelCost few = costs.decode(layers, 1), many = costs.decode(layers, 64);
    EXPECT_GE(few.bytes, 2.0 * double(layers.temporal_bytes()));
    EXPECT_NEAR(many.bytes / few.bytes, 64, 1e-6);
    EXPECT_GT(costs.verify(layers, 1, 4).seconds, few.seconds);
    const std::uint32_t one[] = {8192}, parts[] = {4096, 4096};
    EXPECT_GT(costs.extend(layers, one).seconds, 10 * few.seconds);
    EXPECT_GT(costs.extend(layers, parts).bytes, costs.extend(layers, one).bytes);
  }
}

}  // namespace
}  // namespace tpsim::rank
