#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "launch/deployment/attention.h"
#include "launch/simulation/sweep.h"
#include "rank/cost/hardware.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace {

const std::string kMla = std::string(TPSIM_SOURCE_DIR) + "/tests/golden/models/deepseek-v2";
const std::string kSinks = std::string(TPSIM_SOURCE_DIR) + "/tests/golden/models/gpt-oss";

ServerArgs args_for(const std::string& model, const std::string& hardware, std::vector<std::string> extra) {
  std::vector<std::string> words = {"--model-path", model, "--hardware", hardware, "--trace", "t"};
  words.insert(words.end(), extra.begin(), extra.end());
  return parse(words);
}

AttentionChoice choose(const std::string& model, const std::string& hardware,
                       std::vector<std::string> extra) {
  const ServerArgs args = args_for(model, hardware, std::move(extra));
  return choose_attention(args, nullptr, rank::load_hardware(hardware), rank::load_model_config(model));
}

std::string refused(const std::string& model, const std::string& hardware, std::vector<std::string> extra) {
  try {
    choose(model, hardware, std::move(extra));
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AttentionChoice, MlaRowsAreConsulted) {
  EXPECT_EQ(choose(kMla, "a100-sxm", {}).backends.name(), "triton");
  EXPECT_EQ(choose(kMla, "h200-sxm", {}).backends.name(), "fa3");
  EXPECT_TRUE(refused(kMla, "h200-sxm", {"--kv-cache-dtype", "fp8_e4m3"})
                  .starts_with("--kv-cache-dtype fp8_e4m3: fa3 cannot read an fp8 KV cache"));
  EXPECT_TRUE(refused(kMla, "h200-sxm", {"--attention-backend", "flashinfer", "--page-size", "64"})
                  .starts_with("--page-size 64: flashinfer works on pages of 1 token only"));
  EXPECT_TRUE(refused(kMla, "h200-sxm", {"--attention-backend", "torch_native"})
                  .starts_with("--attention-backend torch_native: has no MLA form"));
}

TEST(AttentionChoice, SinksRuleBackendsOut) {
  EXPECT_EQ(choose(kSinks, "a100-sxm", {}).backends.name(), "triton");
  EXPECT_TRUE(refused(kSinks, "h200-sxm", {"--attention-backend", "flashinfer"})
                  .starts_with("--attention-backend flashinfer: has no attention sinks"));
}

TEST(AttentionChoice, EachHalfIsRefusedUnderItsFlag) {
  EXPECT_TRUE(
      refused("llama-3.1-8b", "a100-sxm", {"--decode-attention-backend", "trtllm_mha"})
          .starts_with(
              "--decode-attention-backend trtllm_mha: runs on hopper, blackwell, blackwell_sm120 only, and "
              "a100-sxm is ampere"));
  EXPECT_TRUE(refused("llama-3.1-8b", "h200-sxm", {"--prefill-attention-backend", "flashmla"})
                  .starts_with("--prefill-attention-backend flashmla: has no MHA form"));
}

TEST(AttentionChoice, SaysWhatItChose) {
  const AttentionChoice choice = choose("llama-3.1-8b", "h200-sxm", {});
  ASSERT_EQ(choice.notes.size(), 1u);
  EXPECT_TRUE(choice.notes[0].starts_with("--attention-backend: fa3 is chosen (Hopper"));
  EXPECT_EQ(choice.page_size, 1u);
  EXPECT_EQ(choice.kv_format, NumberFormat::kBf16);
}

// Whatever the list holds: lone backends and pairs are judged alike by `all` and by a run that names them.
TEST(AllBackends, AreThoseThatRun) {
  for (const char* hardware : {"h200-sxm", "b200", "a100-sxm", "mi300x", "rtx-pro-6000"}) {
    for (const std::string& model : {std::string("llama-3.1-8b"), kMla, kSinks}) {
      const ServerArgs args = args_for(model, hardware, {});
      const AllBackends all = all_backends({&args, 1});
      std::set<std::string> names;
      for (const BackendPair& pair : all.pairs) {
        EXPECT_TRUE(names.insert(pair.name()).second) << pair.name();
        EXPECT_EQ(
            refused(model, hardware,
                    {"--prefill-attention-backend", pair.prefill, "--decode-attention-backend", pair.decode}),
            "accepted")
            << hardware << " " << model << " " << pair.name();
      }
      for (const proto::RefusedSetting& entry : all.others.refused()) {
        const std::string& backends = entry.settings().at("attention_backends");
        EXPECT_FALSE(names.contains(backends)) << backends;
        EXPECT_TRUE(entry.reason().starts_with("--")) << entry.reason();
      }
      EXPECT_LE(all.pairs.size(), 40u) << hardware << " " << model;
    }
  }
}

TEST(AllBackends, PairsThatNoGraphCapturesAreLeftOut) {
  const ServerArgs args = args_for("llama-3.1-8b", "h200-sxm", {});
  const AllBackends all = all_backends({&args, 1});
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(all.pairs, [&](const BackendPair& pair) { return pair.name() == name; });
  };
  EXPECT_TRUE(has("torch_native"));
  EXPECT_TRUE(has("flashinfer+fa3"));
  EXPECT_FALSE(has("torch_native+fa3"));
  ASSERT_EQ(all.others.left_out_size(), 1);
  EXPECT_NE(all.others.left_out(0).find("torch_native"), std::string::npos);
}

// FlashInfer takes an MLA cache in pages of one token, but not of 64.
TEST(AllBackends, WhatRunsInOneSettingOfASweepIsIncluded) {
  const std::vector<ServerArgs> settings = {args_for(kMla, "h200-sxm", {"--page-size", "64"}),
                                            args_for(kMla, "h200-sxm", {"--page-size", "1"})};
  const auto runs = [](const AllBackends& all) {
    return std::ranges::any_of(all.pairs,
                               [](const BackendPair& pair) { return pair.name() == "flashinfer"; });
  };
  EXPECT_FALSE(runs(all_backends({settings.data(), 1})));
  EXPECT_TRUE(runs(all_backends(settings)));
}

}  // namespace
}  // namespace tpsim::launch
