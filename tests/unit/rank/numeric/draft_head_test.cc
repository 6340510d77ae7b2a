// Heads that draft compute what plain PyTorch computes from the same hidden states
// (tests/references/make_draft_heads.py), on any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/selection/registry.h"
#include "rank/llm/draft_model.h"
#include "rank/numeric/numeric_forward.h"
#include "rank/weights/checkpoint.h"
#include "tests/unit/attention/gpu.h"
#include "tests/unit/rank/numeric/one_request.h"

namespace tpsim::rank {
namespace {

using Numbers = std::vector<float>;

void expect_near(std::span<const float> mine, const Numbers& wanted, const char* what) {
  ASSERT_EQ(mine.size(), wanted.size()) << what;
  float largest = 0;
  for (const float x : wanted) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < mine.size(); ++i)
    ASSERT_NEAR(mine[i], wanted[i], 1e-4F * largest) << what << " " << i;
}

class Heads : public ::testing::TestWithParam<std::string> {};

TEST_P(Heads, ComputeWhatPyTorchComputes) {
  const std::string heads = std::string(TPSIM_MODELS) + "/../heads/";
  std::ifstream file(heads + GetParam() + "/reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  const std::string name = reference.at("target");
  const std::string folder = (GetParam() == "eagle3" ? heads : std::string(TPSIM_MODELS) + "/") + name;
  const ModelConfig target = load_model_config(folder);
  const bool next = GetParam() == "nextn";
  const DraftModel draft =
      load_draft_model(next ? "EAGLE" : reference.at("algorithm"), next ? "" : heads + GetParam(), target);
  const DequantisedSource target_source{Checkpoint(folder)}, source{Checkpoint(heads + GetParam())};
  using Hidden = NumericOptions::Hidden;
  for (const std::uint32_t tp : {1U, 2U, 8U}) {
    NumericOptions options;
    options.num_pages = 8;
    options.page_size = 16;
    options.tag_pages = true;
    options.hidden = draft.kind == DraftKind::kEagle3 ? Hidden::kUnnormed : Hidden::kNormed;
    LocalCollectives collectives(tp);
    ThreadPool pool(2);
    const LoadedRanks ranks = load_draft_head_ranks(draft, source, options, collectives,
                                                    load_ranks(target, target_source, options, collectives));
    NumericForward forward(draft.config, ranks, options,
                           attention::create_attention_backend("triton", testing::gpu(), options.page_size),
                           collectives, pool);
    for (const nlohmann::json& pass : reference.at("passes")) {
      const std::vector<std::uint32_t> tokens = pass.at("token_ids"), pages = {3, 1, 2};
      const Numbers given = pass.at("hidden"), out = pass.at("hidden_out");
      const testing::OneRequest extend(tokens, 0, pages);
      TokenBatch batch = extend.batches().front();
      batch.hidden = given;
      expect_near(forward.forward({&batch, 1}), pass.at("logits"), "logits");
      const std::size_t size = target.hidden_size;
      ASSERT_EQ(forward.hidden().size(), tokens.size() * size);
      expect_near(forward.hidden().last(size), out, "hidden state");
      // It goes on from what it was left with.
      const testing::OneRequest decode(std::vector<std::uint32_t>{pass.at("next_token_id")},
                                       static_cast<std::uint32_t>(tokens.size()), pages, proto::DECODE);
      batch = decode.batches().front();
      batch.hidden = out;
      expect_near(forward.forward({&batch, 1}), pass.at("next_logits"), "next logits");
      expect_near(forward.hidden(), pass.at("next_hidden_out"), "next hidden state");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Draft, Heads, ::testing::Values("eagle", "eagle3", "nextn"),
                         [](const auto& info) { return info.param; });

// Source: set_eagle3_layers_to_capture of SGLang's models/llama.py.
TEST(DraftHead, ReadsTheLayersThatItsConfigNames) {
  const ModelConfig target = load_model_config("llama-3.1-8b");
  const std::string folder = ::testing::TempDir() + "tpsim_eagle3_head";
  const auto layers = [&](const std::string& more) {
    std::ofstream(folder + ".json") << R"({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "max_position_embeddings": 2048, "draft_vocab_size": 32000)"
                                    << more << "}";
    return load_draft_model("EAGLE3", folder + ".json", target).hidden_layers;
  };
  using Layers = std::vector<std::uint32_t>;
  EXPECT_EQ(layers(""), (Layers{2, 16, 29}));
  EXPECT_EQ(layers(R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 14, 30]})"),
            (Layers{1, 15, 31}));
}

}  // namespace
}  // namespace tpsim::rank
