// Speculative decoding of a deployment: SGLang's defaults, what is refused, what it takes of memory.
#include "launch/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/deployment.h"
#include "tests/unit/launch/parse.h"

namespace tpsim::launch {
namespace {

using ::testing::HasSubstr;

// The head of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, as its config.json says.
constexpr const char* kEagle3 = R"({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 128256, "draft_vocab_size": 32000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
  "torch_dtype": "float16"})";

class Speculating : public ::testing::Test {
 protected:
  ~Speculating() override { std::filesystem::remove_all(folder_); }

  std::string head(std::string config) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << config;
    return folder_.string();
  }
  static Deployment resolve(const std::string& model, const std::string& hardware,
                            const std::vector<std::string>& extra) {
    std::vector<std::string> words = {"--model-path", model, "--hardware", hardware, "--trace", "t"};
    words.insert(words.end(), extra.begin(), extra.end());
    return resolve_deployments(parse(words), false).at(0);
  }
  static std::string refused(const std::string& model, const std::string& hardware,
                             const std::vector<std::string>& extra) {
    try {
      resolve(model, hardware, extra);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  }
  static std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  const std::vector<std::string> ngram_ = {"--speculative-algorithm", "NGRAM", "--speculative-accept-rates",
                                           "0.7"};
  const std::vector<std::string> own_ = {"--speculative-algorithm",        "STANDALONE",
                                         "--speculative-draft-model-path", "llama-3.1-8b",
                                         "--speculative-accept-rates",     "0.7"};
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("tpsim-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(Speculating, GraphsOfTheDraftsExtendByRelease) {
  const auto captured = [&](const std::string& release, const std::string& backend, const std::string& topk) {
    return resolve("llama-3.1-8b", "h200-sxm",
                   with(own_, {"--sglang-version", release, "--attention-backend", backend,
                               "--speculative-num-steps", "3", "--speculative-eagle-topk", topk,
                               "--speculative-num-draft-tokens", "4"}))
        .draft_extend_captured;
  };
  EXPECT_FALSE(captured("0.5.12", "fa3", "1"));
  EXPECT_TRUE(captured("0.5.12", "fa3", "4"));  // v1
  EXPECT_TRUE(captured("0.5.12", "triton", "1"));
  EXPECT_FALSE(captured("0.5.14", "fa3", "4"));
  EXPECT_FALSE(captured("0.5.12", "flashinfer", "1"));
  EXPECT_TRUE(captured("0.5.14", "flashinfer", "1"));
  EXPECT_TRUE(captured("0.5.23", "fa3", "4"));
}

TEST_F(Speculating, DefaultsAreSglangs) {
  const Deployment llama = resolve("llama-3.1-8b", "h200-sxm",
                                   {"--speculative-algorithm", "eagle3", "--speculative-draft-model-path",
                                    head(kEagle3), "--speculative-accept-rates", "0.8,0.7"});
  const scheduler::SpeculationConfig& eagle = llama.scheduler.speculation;
  EXPECT_EQ(eagle.num_steps, 5u);
  EXPECT_EQ(eagle.topk, 4u);
  EXPECT_EQ(eagle.num_draft_tokens, 8u);
  EXPECT_EQ(llama.scheduler.max_running_requests, 48u);
  EXPECT_EQ(llama.speculation.draft->config.vocab_size, 32000u);
  EXPECT_EQ(llama.scheduler.cuda_graph_bs.front(), 1u);
  EXPECT_EQ(llama.scheduler.cuda_graph_bs.at(2), 3u);
  EXPECT_EQ(llama.scheduler.cuda_graph_bs.back(), 48u);

  const Deployment deepseek =
      resolve("deepseek-v3", "h200-sxm",
              {"--tp", "8", "--speculative-algorithm", "NEXTN", "--speculative-accept-rates", "0.8"});
  EXPECT_EQ(deepseek.speculation.algorithm, "EAGLE");
  EXPECT_EQ(deepseek.scheduler.speculation.num_steps, 3u);
  EXPECT_EQ(deepseek.scheduler.speculation.topk, 1u);
  EXPECT_EQ(deepseek.scheduler.speculation.num_draft_tokens, 4u);
  EXPECT_EQ(deepseek.speculation.draft->config.num_layers, 1u);
  EXPECT_EQ(deepseek.speculation.draft->config.moe.num_layers, 1u);

  const Deployment ngram = resolve("qwen3-8b", "h200-sxm", ngram_);
  EXPECT_EQ(ngram.scheduler.speculation.num_draft_tokens, 12u);
  EXPECT_EQ(ngram.scheduler.speculation.topk, 10u);
  EXPECT_FALSE(ngram.scheduler.disable_overlap_schedule);
  EXPECT_EQ(ngram.backends.name(), "fa3");
  EXPECT_NEAR(ngram.scheduler.speculation.accepted.at(0).mean(), (1 - std::pow(0.7, 12)) / 0.3, 1e-9);
}

TEST_F(Speculating, ReleasesDifferInOverlapAndReserve) {
  const auto v2 = [&](const char* release, const std::vector<std::string>& more) {
    const Deployment d = resolve("llama-3.1-8b", "h200-sxm", with(more, {"--sglang-version", release}));
    return std::pair(d.scheduler.speculation.v2, d.scheduler.disable_overlap_schedule);
  };
  const auto tree = with(own_, {"--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
                                "--speculative-num-draft-tokens", "8", "--attention-backend", "fa3"});
  EXPECT_EQ(v2("0.5.12", ngram_), std::pair(false, true));
  EXPECT_EQ(v2("0.5.12", own_), std::pair(true, false));
  EXPECT_EQ(v2("0.5.12", tree), std::pair(false, true));
  EXPECT_EQ(v2("0.5.23", ngram_), std::pair(true, false));
  EXPECT_EQ(v2("0.5.23", tree), std::pair(true, false));
  EXPECT_EQ(v2("0.5.23", with(own_, {"--disable-overlap-schedule"})), std::pair(true, true));
}

TEST_F(Speculating, ADraftModelTakesMemory) {
  const auto pool = [&](const std::vector<std::string>& more) {
    return resolve("llama-3.1-8b", "h200-sxm", more).scheduler.max_total_num_tokens;
  };
  const std::uint64_t alone = pool({});
  EXPECT_EQ(pool(ngram_), alone);
  // Another llama-3.1-8b: 15 GiB of weights, and as much KV again for every token.
  EXPECT_NEAR(static_cast<double>(pool(own_)), (static_cast<double>(alone) - 15.0 * 8192) / 2, 1500);
  // Before, memory was kept free instead: 6 GiB for a model of its own.
  const std::vector<std::string> old = {"--sglang-version", "0.5.12"};
  EXPECT_NEAR(static_cast<double>(pool(with(own_, old))), static_cast<double>(pool(old)) - 6.0 * 8192, 1500);
}

TEST_F(Speculating, WhatCannotBeIsRefused) {
  const std::string one = "llama-3.1-8b";
  const std::vector<std::string> tree = {
      "--speculative-num-steps", "3", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8"};
  EXPECT_THAT(refused(one, "h200-sxm", {"--speculative-num-steps", "3"}),
              HasSubstr("--speculative-num-steps: needs --speculative-algorithm"));
  EXPECT_THAT(
      refused(one, "h200-sxm", {"--speculative-algorithm", "EAGLE", "--speculative-accept-rates", "1"}),
      HasSubstr("--speculative-draft-model-path: is required"));
  EXPECT_THAT(refused(one, "h200-sxm",
                      {"--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path",
                       "llama-9-1b", "--speculative-accept-rates", "1"}),
              HasSubstr("--speculative-draft-model-path llama-9-1b: neither a known model"));
  EXPECT_THAT(refused(one, "h200-sxm", {"--speculative-algorithm", "NGRAM"}),
              HasSubstr("--speculative-accept-rates: is required"));
  EXPECT_THAT(refused(one, "h200-sxm", {"--speculative-algorithm", "DFLASH"}), HasSubstr("is not simulated"));
  EXPECT_THAT(refused(one, "h200-sxm", with(own_, {"--speculative-num-steps", "3"})),
              HasSubstr("give all three or none"));
  EXPECT_THAT(refused(one, "h200-sxm",
                      with(own_, {"--speculative-num-steps", "1", "--speculative-eagle-topk", "2",
                                  "--speculative-num-draft-tokens", "8"})),
              HasSubstr("trees of 2 to 3 tokens"));
  EXPECT_THAT(refused(one, "h200-sxm", with(ngram_, {"--speculative-draft-model-path", "qwen3-8b"})),
              HasSubstr("NGRAM drafts without a model"));
  EXPECT_THAT(refused("qwen3-8b", "h200-sxm", own_), HasSubstr("in its vocabulary"));
  EXPECT_THAT(refused(one, "h200-sxm", with(own_, {"--dp-size", "2", "--tp", "2", "--enable-dp-attention"})),
              HasSubstr("--speculative-algorithm STANDALONE"));
  EXPECT_THAT(refused("qwen3.5-397b-a17b", "h200-sxm", with(ngram_, {"--tp", "8"})),
              HasSubstr("gated delta-net"));
  EXPECT_THAT(refused("deepseek-v3.2", "h200-sxm", with(ngram_, {"--tp", "8"})),
              HasSubstr("sparse attention"));
  EXPECT_THAT(refused(head(kEagle3), "h200-sxm", ngram_), HasSubstr("is a head that drafts"));
  // Attention.
  EXPECT_THAT(refused(one, "b200", with(with(own_, tree), {"--attention-backend", "trtllm_mha"})),
              HasSubstr("trtllm_mha verifies chains of drafts only; use --speculative-eagle-topk 1"));
  EXPECT_THAT(
      refused(one, "h200-sxm", with(with(own_, tree), {"--attention-backend", "fa3", "--page-size", "16"})),
      HasSubstr("verified by flashinfer only, not fa3"));
  EXPECT_EQ(refused(one, "h200-sxm",
                    with(with(own_, tree), {"--attention-backend", "flashinfer", "--page-size", "16"})),
            "accepted");
  EXPECT_THAT(refused(one, "h200-sxm", with(ngram_, {"--attention-backend", "fa3", "--page-size", "16"})),
              HasSubstr("--speculative-ngram-max-bfs-breadth 1"));
  EXPECT_EQ(refused(one, "h200-sxm",
                    with(ngram_, {"--attention-backend", "fa3", "--page-size", "16",
                                  "--speculative-ngram-max-bfs-breadth", "1"})),
            "accepted");
  EXPECT_THAT(refused(one, "h200-sxm", with(ngram_, {"--attention-backend", "torch_native"})),
              HasSubstr("torch_native: does not verify drafts"));
}

// Which half of a pair drafts and verifies decides whether a pair can.
TEST_F(Speculating, TheHalfThatVerifiesMustBeAbleTo) {
  const std::vector<std::string> pair = {"--prefill-attention-backend", "torch_native",
                                         "--decode-attention-backend", "fa3"};
  EXPECT_THAT(refused("llama-3.1-8b", "h200-sxm", with(ngram_, pair)),
              HasSubstr("--prefill-attention-backend torch_native: does not verify drafts"));
  const auto decode = with(with(ngram_, pair), {"--speculative-attention-mode", "decode"});
  EXPECT_EQ(refused("llama-3.1-8b", "h200-sxm", decode), "accepted");
  EXPECT_FALSE(resolve("llama-3.1-8b", "h200-sxm", decode).scheduler.cuda_graph_bs.empty());
}

TEST_F(Speculating, TheAutomaticChoiceKnowsTrees) {
  const auto chosen = [&](const std::string& hardware, const std::vector<std::string>& more) {
    return resolve("llama-3.1-8b", hardware, with(own_, more)).backends.name();
  };
  const std::vector<std::string> chain = {"--speculative-num-steps", "3", "--speculative-eagle-topk", "1"};
  const std::vector<std::string> tree = {
      "--speculative-num-steps", "3", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8"};
  EXPECT_EQ(chosen("h200-sxm", chain), "fa3");
  EXPECT_EQ(chosen("h200-sxm", tree), "flashinfer");
  EXPECT_EQ(chosen("b200", chain), "trtllm_mha");
  EXPECT_EQ(chosen("b200", tree), "flashinfer");
  EXPECT_EQ(chosen("b200", {}), "flashinfer");
  EXPECT_EQ(chosen("a100-sxm", tree), "flashinfer");
}

TEST_F(Speculating, RecordedLengthsAreReadWithTheirLines) {
  std::filesystem::create_directories(folder_);
  const std::string file = (folder_ / "lengths.csv").string();
  const auto said = [&](const char* text) {
    std::ofstream(file) << text;
    return refused("llama-3.1-8b", "h200-sxm",
                   {"--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "4",
                    "--speculative-accept-lengths", file});
  };
  EXPECT_EQ(said("accept_len,count\n1,30\n4,70\n"), "accepted");
  EXPECT_THAT(said("1,30\n5,70\n"), HasSubstr("lengths.csv:2 length 5"));
  EXPECT_THAT(said("1 30\n"), HasSubstr("lengths.csv:1: is no line"));
  EXPECT_THAT(said("1,0\n"), HasSubstr("names no length that ever was"));
  EXPECT_THAT(refused("llama-3.1-8b", "h200-sxm",
                      {"--speculative-algorithm", "NGRAM", "--speculative-accept-lengths", "/nonexistent"}),
              HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace tpsim::launch
