// Which deployments give window layers a pool of their own, and how large SGLang makes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/deployment/resolve.h"
#include "rank/llm/memory.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace {

using ::testing::HasSubstr;

Deployment resolve(const std::string& model, std::vector<std::string> extra = {}) {
  std::vector<std::string> words = {"--model-path", model, "--hardware", "h200-sxm",
                                    "--trace",      "t",   "--tp",       "8"};
  words.insert(words.end(), extra.begin(), extra.end());
  return resolve_deployments(parse(words), false).at(0);
}

std::string refused(const std::string& model, const std::vector<std::string>& extra) {
  try {
    resolve(model, extra);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

std::uint64_t kv_pool_bytes(const Deployment& deployment) {
  return deployment.ranks.ranks[0].kv_pool_bytes();
}

TEST(WindowPool, IsThereForTheModelsThatSglangGivesOne) {
  // gpt-oss counts the token itself, SGLang's window does not; Llama 4's chunk is a window of its length.
  EXPECT_EQ(resolve("gpt-oss-120b").scheduler.sliding_window_size, 127u);
  EXPECT_EQ(resolve("llama-4-scout").scheduler.sliding_window_size, 8192u);
  // SGLang disables it for Gemma, and knows no windows of Mistral.
  for (const char* model : {"gemma-3-27b", "mistral-7b", "llama-3.1-8b"}) {
    EXPECT_EQ(resolve(model).scheduler.sliding_window_size, 0u) << model;
    EXPECT_EQ(resolve(model).scheduler.swa_max_total_num_tokens, 0u) << model;
  }
}

TEST(WindowPool, SharesTheMemoryByTheRatio) {
  const Deployment one = resolve("gpt-oss-120b", {"--disable-hybrid-swa-memory"});
  EXPECT_EQ(one.scheduler.sliding_window_size, 0u);
  double before = 0;
  for (const char* ratio : {"1.0", "0.8", "0.1"}) {
    const Deployment two = resolve("gpt-oss-120b", {"--swa-full-tokens-ratio", ratio});
    const auto full = static_cast<double>(two.scheduler.max_total_num_tokens);
    const auto windows = static_cast<double>(two.scheduler.swa_max_total_num_tokens);
    EXPECT_NEAR(windows, full * std::stod(ratio), two.scheduler.page_size);
    // Half of the layers have windows: of the memory, full tokens use (1 + ratio) / 2.
    EXPECT_NEAR(full * (1 + std::stod(ratio)) / 2, static_cast<double>(one.scheduler.max_total_num_tokens),
                200);
    EXPECT_NEAR(static_cast<double>(kv_pool_bytes(two)), static_cast<double>(kv_pool_bytes(one)), 1e7);
    EXPECT_GT(full, before);
    before = full;
  }
  EXPECT_EQ(resolve("gpt-oss-120b").scheduler.swa_max_total_num_tokens,
            resolve("gpt-oss-120b", {"--swa-full-tokens-ratio", "0.8"}).scheduler.swa_max_total_num_tokens);
}

TEST(WindowPool, FollowsTheSizeThatWasAskedFor) {
  const Deployment asked = resolve(
      "gpt-oss-120b", {"--max-total-tokens", "10000", "--page-size", "64", "--swa-full-tokens-ratio", "0.3"});
  EXPECT_EQ(asked.scheduler.max_total_num_tokens, 9984u);
  EXPECT_EQ(asked.scheduler.swa_max_total_num_tokens, 2944u);  // 46 pages of 2,995.2 tokens
  EXPECT_THAT(refused("gpt-oss-120b", {"--max-total-tokens", "600", "--swa-full-tokens-ratio", "0.2"}),
              HasSubstr("--swa-full-tokens-ratio 0.2: makes a pool of 120 tokens"));
}

// compute_swa_request_cap: what the running requests can hold, where nothing else is kept.
TEST(WindowPool, HoldsTheRunningRequestsWithoutARadixCache) {
  const std::vector<std::string> flags = {"--disable-radix-cache",
                                          "--max-running-requests",
                                          "64",
                                          "--page-size",
                                          "16",
                                          "--chunked-prefill-size",
                                          "2048"};
  const Deployment capped = resolve("gpt-oss-120b", flags);
  // 64 x (127 + 128 + 2 x 16) + 2 x 2,048 + 16, in whole pages
  EXPECT_EQ(capped.scheduler.swa_max_total_num_tokens, 22480u);
  EXPECT_EQ(rank::most_window_tokens(127, 16, 64, 2048, false), 20432u);
  EXPECT_GT(capped.scheduler.max_total_num_tokens, resolve("gpt-oss-120b").scheduler.max_total_num_tokens);
  std::vector<std::string> whole = flags;
  whole.back() = "-1";
  EXPECT_GT(resolve("gpt-oss-120b", whole).scheduler.swa_max_total_num_tokens, 1'000'000u);
}

TEST(WindowPool, ItsFlagsAreRefusedWhereTheySayNothing) {
  EXPECT_THAT(refused("llama-3.1-8b", {"--swa-full-tokens-ratio", "0.5"}),
              HasSubstr("no pool of window layers"));
  EXPECT_THAT(refused("gpt-oss-20b", {"--swa-full-tokens-ratio", "0.5", "--disable-hybrid-swa-memory"}),
              HasSubstr("there is no pool to size"));
  for (const char* ratio : {"0", "1.5", "-1", "x"}) {
    EXPECT_THAT(refused("gpt-oss-20b", {"--swa-full-tokens-ratio", ratio}),
                HasSubstr("--swa-full-tokens-ratio"));
  }
  const Deployment older = resolve("gpt-oss-20b", {"--sglang-version", "0.5.12"});
  EXPECT_TRUE(std::any_of(older.notes.begin(), older.notes.end(), [](const std::string& note) {
    return note.find("follows the rules of 0.5.23") != std::string::npos;
  }));
}

TEST(WindowPool, ChunksThatABackendDoesNotCutAreSaid) {
  const auto says = [](const Deployment& deployment) {
    return std::any_of(deployment.notes.begin(), deployment.notes.end(), [](const std::string& note) {
      return note.find("reads the whole context") != std::string::npos;
    });
  };
  EXPECT_FALSE(says(resolve("llama-4-scout", {"--attention-backend", "fa3"})));
  EXPECT_TRUE(says(resolve("llama-4-scout", {"--attention-backend", "triton"})));
  EXPECT_FALSE(says(resolve("llama-3.1-8b", {"--attention-backend", "triton"})));
}

}  // namespace
}  // namespace tpsim::launch
