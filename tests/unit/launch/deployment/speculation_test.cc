// Speculative decoding of a deployment: SGLang's defaults, what is refused, what it takes of memory.
#include "launch/deployment/speculation.h"

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

#include "launch/deployment/resolve.h"
#include "tests/unit/launch/deployment/parse.h"

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
  const std::vector<std::string> nextn_ = {"--speculative-algorithm", "NEXTN", "--speculative-accept-rates",
                                           "0.8"};
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
        .draft.extend_captured;
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
  EXPECT_EQ(ngram.attention.backends.name(), "fa3");
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
  EXPECT_THAT(refused("kimi-k2", "h200-sxm",
                      {"--tp", "16", "--speculative-algorithm", "NEXTN", "--speculative-accept-rates", "1"}),
              HasSubstr("brings no layer that drafts"));
  EXPECT_THAT(refused("deepseek-v4-flash", "b200", with(nextn_, {"--tp", "4"})), HasSubstr("takes as EAGLE"));
  EXPECT_THAT(refused("deepseek-v3.2", "h200-sxm", with(ngram_, {"--tp", "8"})),
              HasSubstr("nsa verifies chains of drafts only"));
  EXPECT_THAT(
      refused("qwen3-next-80b-a3b", "h200-sxm", with(nextn_, {"--tp", "4", "--mamba-track-interval", "2"})),
      HasSubstr("--mamba-track-interval 2: must be 4 at least"));
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

// The commands of SGLang's own documentation for models that speculate with a layer of their own.
TEST_F(Speculating, ServersOfTheDocumentationAreDeployed) {
  const auto chain = std::vector<std::string>{
      "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"};
  for (const auto& [model, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"deepseek-ai/DeepSeek-V3", {"--tp", "8"}},
           {"deepseek-ai/DeepSeek-R1-0528", {"--tp", "8", "--dp", "8", "--enable-dp-attention"}},
           {"deepseek-ai/DeepSeek-V3",
            {"--tp", "8", "--dp", "8", "--enable-dp-attention", "--moe-a2a-backend", "deepep",
             "--enable-dp-lm-head", "--moe-dense-tp-size", "1"}},
           {"deepseek-ai/DeepSeek-V3", {"--tp", "8", "--speculative-draft-model-path", "deepseek-v3"}},
           {"deepseek-ai/DeepSeek-V3.2", {"--tp", "8", "--dp", "8", "--enable-dp-attention"}},
           {"deepseek-ai/DeepSeek-V3.2-Exp", {"--tp", "8"}},
           {"zai-org/GLM-5-FP8", {"--tp", "8"}},
           {"zai-org/GLM-4.5-Air", {"--tp", "8"}},
           {"Qwen/Qwen3-Next-80B-A3B-Instruct", {"--tp", "4"}},
           {"Qwen/Qwen3-Next-80B-A3B-Instruct", {"--tp", "4", "--mamba-scheduler-strategy", "extra_buffer"}},
           {"Qwen/Qwen3.5-397B-A17B", {"--tp", "8", "--mem-fraction-static", "0.9"}}}) {
    SCOPED_TRACE(model);
    EXPECT_EQ(refused(model, "h200-sxm", with(with(nextn_, words), chain)), "accepted");
  }
}

// _handle_eagle_family of speculative_hook.py and resolve_max_num_reqs: 48 requests in all, shared.
TEST_F(Speculating, DataParallelRanksShareTheRequests) {
  const auto dp = with(nextn_, {"--tp", "8", "--dp", "8", "--enable-dp-attention"});
  EXPECT_EQ(resolve("deepseek-v3", "h200-sxm", dp).scheduler.max_running_requests, 6u);
  EXPECT_EQ(resolve("deepseek-v3", "h200-sxm", with(dp, {"--max-running-requests", "128"}))
                .scheduler.max_running_requests,
            16u);
  const Deployment wide = resolve(
      "deepseek-v3", "gb200",
      with(nextn_, {"--tp", "64", "--dp", "64", "--enable-dp-attention", "--moe-a2a-backend", "deepep",
                    "--enable-dp-lm-head", "--moe-dense-tp-size", "1", "--mem-fraction-static", "0.8"}));
  EXPECT_EQ(wide.scheduler.max_running_requests, 1u);
  for (const char* algorithm : {"STANDALONE", "NGRAM"})
    EXPECT_THAT(refused("deepseek-v3", "h200-sxm",
                        {"--tp", "8", "--dp", "8", "--enable-dp-attention", "--speculative-algorithm",
                         algorithm, "--speculative-draft-model-path", "llama-3.2-3b"}),
                HasSubstr("SGLang refuses it with data-parallel attention"));
}

// An EAGLE3 head is whole on each data-parallel rank's own GPUs; a layer of the target is cut as the target.
TEST_F(Speculating, HeadsOfDataParallelRanksAreTheirOwn) {
  const std::string path = head(
      R"({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 7168, "intermediate_size": 40960,
          "num_hidden_layers": 1, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 128,
          "vocab_size": 129280, "draft_vocab_size": 32000, "max_position_embeddings": 2048,
          "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16"})");
  const std::vector<std::string> eagle3 = {"--speculative-algorithm",
                                           "EAGLE3",
                                           "--speculative-draft-model-path",
                                           path,
                                           "--speculative-accept-rates",
                                           "0.7",
                                           "--tp",
                                           "8"};
  const Deployment alone = resolve("deepseek-v3", "h200-sxm", eagle3);
  EXPECT_EQ(alone.draft.layout.tp_size, 8u);
  const Deployment dp =
      resolve("deepseek-v3", "h200-sxm", with(eagle3, {"--dp", "4", "--enable-dp-attention"}));
  EXPECT_EQ(dp.draft.layout.tp_size, 2u);
  EXPECT_EQ(dp.draft.layout.dp_size, 1u);
  const Deployment next =
      resolve("deepseek-v3", "h200-sxm", with(nextn_, {"--tp", "8", "--dp", "4", "--enable-dp-attention"}));
  EXPECT_EQ(next.draft.layout.dp_size, 4u);
}

// Qwen3-Next's layer for the next token has attention, and its KV counts as one of the target's twelve.
TEST_F(Speculating, LayersForTheNextTokenAttend) {
  const Deployment d = resolve("qwen3-next-80b-a3b", "h200-sxm", with(nextn_, {"--tp", "4"}));
  ASSERT_TRUE(d.speculation.draft.has_value());
  EXPECT_FALSE(d.speculation.draft->config.is_hybrid_linear());
  EXPECT_EQ(d.speculation.draft->config.num_layers, 1u);
  const Deployment plain = resolve("qwen3-next-80b-a3b", "h200-sxm", {"--tp", "4"});
  EXPECT_EQ(d.ranks.stage_kv_bytes.at(0), plain.ranks.stage_kv_bytes.at(0) / 12 * 13);
  EXPECT_GT(d.memory.verified_state_bytes, 0u);
  EXPECT_EQ(plain.memory.verified_state_bytes, 0u);
  const Deployment sparse = resolve("deepseek-v3.2", "h200-sxm", with(nextn_, {"--tp", "8"}));
  EXPECT_TRUE(sparse.speculation.draft->config.is_sparse());
  EXPECT_EQ(sparse.draft.backend, "nsa");
}

TEST_F(Speculating, PublishedHeadsAreKnown) {
  const auto drafts = [&](const std::string& model, const std::string& algorithm, const std::string& path) {
    return resolve(model, "h200-sxm",
                   {"--tp", "8", "--speculative-algorithm", algorithm, "--speculative-draft-model-path", path,
                    "--speculative-accept-rates", "0.7"})
        .speculation.draft->config;
  };
  EXPECT_EQ(drafts("gpt-oss-120b", "EAGLE3", "lmsys/EAGLE3-gpt-oss-120b-bf16").intermediate_size, 17280u);
  EXPECT_EQ(drafts("llama-3.1-8b", "EAGLE3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B").vocab_size, 32000u);
  EXPECT_EQ(drafts("deepseek-v3", "EAGLE", "lmsys/DeepSeek-V3-NextN").moe.num_experts, 256u);
  EXPECT_THAT(refused("llama-3.1-8b", "h200-sxm",
                      {"--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path",
                       "eagle3-gpt-oss-120b", "--speculative-accept-rates", "0.7"}),
              HasSubstr("its hidden size is 2880 and that of llama-3.1-8b 4096"));
}

// models/deepseek_nextn.py: NVFP4 is for the target alone; other formats are the draft's, too, unless said.
TEST_F(Speculating, DraftsHaveFormatsOfTheirOwn) {
  const auto method = [&](const std::string& model, const std::vector<std::string>& more) {
    return resolve(model, "b200", with(nextn_, more)).speculation.draft->config.quantization.method;
  };
  EXPECT_EQ(method("deepseek-v3", {"--tp", "8"}), "fp8");
  EXPECT_EQ(method("nvidia/DeepSeek-R1-0528-FP4", {"--tp", "8"}), "");
  EXPECT_EQ(method("deepseek-v3", {"--tp", "8", "--speculative-draft-model-quantization", "unquant"}), "");
  EXPECT_EQ(method("qwen3-next-80b-a3b", {"--tp", "4", "--quantization", "fp8"}), "fp8");
  const auto own = [&](const std::vector<std::string>& more) {
    return resolve("llama-3.1-8b", "h200-sxm", with(own_, more))
        .speculation.draft->config.quantization.method;
  };
  EXPECT_EQ(own({}), "");
  EXPECT_EQ(own({"--quantization", "fp8"}), "fp8");
  EXPECT_EQ(own({"--quantization", "fp8", "--speculative-draft-model-quantization", "unquant"}), "");
  EXPECT_EQ(own({"--speculative-draft-model-quantization", "fp8"}), "fp8");
  const Deployment narrow =
      resolve("deepseek-v3", "h200-sxm",
              with(nextn_, {"--tp", "8", "--speculative-draft-kv-cache-dtype", "fp8_e4m3"}));
  EXPECT_EQ(narrow.draft.kv_format, NumberFormat::kFp8E4M3);
  EXPECT_EQ(narrow.attention.kv_format, NumberFormat::kBf16);
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
    return resolve("llama-3.1-8b", hardware, with(own_, more)).attention.backends.name();
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
  EXPECT_EQ(said("step,accept_len,count\n0,1,30\n0,2,3\n4,4,70\n"), "accepted");
  EXPECT_THAT(said("0,1,30\n4,5,70\n"), HasSubstr("lengths.csv:2 length 5"));
  EXPECT_THAT(said("4,1,30\n0,4,70\n"), HasSubstr("lengths.csv:2: step 0 stands after step 4"));
  EXPECT_THAT(said("0,1,30\n4,70\n"), HasSubstr("lengths.csv:2: is no line"));
  EXPECT_THAT(said("0,1,30\n4,2,0\n"), HasSubstr("names no length that ever was from step 4 on"));
  EXPECT_THAT(said("1,0\n"), HasSubstr("names no length that ever was"));
  EXPECT_THAT(refused("llama-3.1-8b", "h200-sxm",
                      {"--speculative-algorithm", "NGRAM", "--speculative-accept-lengths", "/nonexistent"}),
              HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace tpsim::launch
