// The dense reference, which `tpsim verify` holds everything against, agrees with Transformers: the logits
// and greedy tokens of tests/golden/models (made by tests/references/make_references.py).
#include "rank/numeric/dense_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rank/weights/checkpoint.h"

namespace tpsim::rank {
namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TPSIM_MODELS)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenModels : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModels, LogitsAndGreedyTokensAreTransformers) {
  const std::string folder = std::string(TPSIM_MODELS) + "/" + GetParam();
  const ModelConfig model = load_model_config(folder);
  const DequantisedSource weights{Checkpoint(folder)};
  const DenseReference dense(model, weights);
  std::ifstream file(folder + "/reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  for (const auto& prompt : reference.at("prompts")) {
    auto ids = prompt.at("prompt_ids").get<std::vector<std::uint32_t>>();
    const auto logits = prompt.at("logits").get<std::vector<double>>();
    const auto tokens = prompt.at("token_ids").get<std::vector<std::uint32_t>>();
    ASSERT_EQ(tokens.size(), 64U);
    const std::size_t length = ids.size();
    // All at once: position i says which token follows.
    ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
    const std::vector<double> all = dense.forward(ids);
    ASSERT_EQ(all.size(), ids.size() * model.vocab_size);
    double largest = 0;
    for (const double logit : logits) largest = std::max(largest, std::fabs(logit));
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(all[(length - 1) * model.vocab_size + i], logits[i], 1e-4 * largest);
    // Dynamic rope turns by the length of the sequence, which "all at once" is not; see the integration test.
    if (model.ropes.front().type == RopeType::kDynamic && ids.size() > model.max_position_embeddings)
      continue;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>((length - 1 + t) * model.vocab_size);
      const auto best = std::max_element(row, row + model.vocab_size) - row;
      ASSERT_EQ(best, tokens[t]) << "token " << t << " behind a prompt of " << length;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (const char separator : {'-', '.'}) std::replace(name.begin(), name.end(), separator, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModels, ::testing::ValuesIn(model_names()), test_name);

TEST(GoldenModels, ThereIsOneOfEachArchitecture) {
  std::vector<std::string> seen;
  for (const std::string& name : model_names())
    seen.push_back(load_model_config(std::string(TPSIM_MODELS) + "/" + name).architecture);
  for (const char* wanted : {"LlamaForCausalLM",
                             "Qwen2ForCausalLM",
                             "Qwen3ForCausalLM",
                             "MistralForCausalLM",
                             "Gemma2ForCausalLM",
                             "Gemma3ForCausalLM",
                             "MixtralForCausalLM",
                             "Qwen3MoeForCausalLM",
                             "DeepseekV2ForCausalLM",
                             "DeepseekV3ForCausalLM",
                             "DeepseekV32ForCausalLM",
                             "DeepseekV4ForCausalLM",
                             "GlmMoeDsaForCausalLM",
                             "GptOssForCausalLM",
                             "Llama4ForCausalLM",
                             "Glm4MoeForCausalLM",
                             "MiniMaxM2ForCausalLM",
                             "Phi3ForCausalLM",
                             "Qwen3NextForCausalLM",
                             "Qwen3_5MoeForCausalLM",
                             "Step3p5ForCausalLM",
                             "Lfm2ForCausalLM",
                             "Lfm2MoeForCausalLM",
                             "KimiLinearForCausalLM",
                             "Gemma4ForCausalLM",
                             "Ernie4_5ForCausalLM",
                             "Ernie4_5_MoeForCausalLM",
                             "HunYuanDenseV1ForCausalLM",
                             "HunYuanMoEV1ForCausalLM",
                             "HYV3ForCausalLM",
                             "Glm4MoeLiteForCausalLM",
                             "LagunaForCausalLM",
                             "NemotronHForCausalLM",
                             "MiniMaxM3SparseForCausalLM",
                             "GraniteForCausalLM",
                             "GraniteMoeSharedForCausalLM",
                             "GraniteMoeHybridForCausalLM",
                             "Olmo2ForCausalLM",
                             "Olmo3ForCausalLM",
                             "OlmoeForCausalLM",
                             "CohereForCausalLM",
                             "Cohere2ForCausalLM",
                             "Glm4ForCausalLM",
                             "ChatGLMModel",
                             "ExaoneForCausalLM",
                             "Exaone4ForCausalLM",
                             "ExaoneMoEForCausalLM",
                             "InternLM2ForCausalLM",
                             "Qwen2MoeForCausalLM",
                             "GemmaForCausalLM",
                             "ArceeForCausalLM",
                             "AfmoeForCausalLM",
                             "StableLmForCausalLM",
                             "Starcoder2ForCausalLM",
                             "MiMoV2FlashForCausalLM",
                             "BailingMoeV2ForCausalLM",
                             "Ministral3ForCausalLM"}) {
    EXPECT_NE(std::find(seen.begin(), seen.end(), wanted), seen.end()) << wanted;
  }
}

}  // namespace
}  // namespace tpsim::rank
