// What --enable-hierarchical-cache comes to: sizes, backends and layouts as SGLang has them, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/deployment/resolve.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace hicache_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Of 0.5.12, unless `extra` names another.
Deployment resolve(const std::vector<std::string>& extra, const std::string& model = "llama-3.1-8b") {
  std::vector<std::string> words = {"--model-path",       model,     "--hardware",
                                    "h200-sxm",           "--trace", "t",
                                    "--max-total-tokens", "60032",   "--enable-hierarchical-cache"};
  if (std::find(extra.begin(), extra.end(), "--sglang-version") == extra.end())
    words.insert(words.end(), {"--sglang-version", "0.5.12"});
  words.insert(words.end(), extra.begin(), extra.end());
  return resolve_deployments(parse(words), false).at(0);
}

std::string refused(const std::vector<std::string>& extra, const std::string& model = "llama-3.1-8b") {
  try {
    resolve(extra, model);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(HiCache, HostsAPageMoreThanIsAskedFor) {
  EXPECT_EQ(resolve({}).scheduler.hicache.tier.tokens, 2u * 60032 + 1);
  // What SGLang 0.5.12 said of such servers: 150,146 tokens, rounded to 10 MB of its log.
  EXPECT_EQ(resolve({"--hicache-ratio", "2.5", "--page-size", "64"}).scheduler.hicache.tier.tokens,
            (150080u / 64 + 1) * 64);
  EXPECT_EQ(resolve({"--hicache-size", "20"}).scheduler.hicache.tier.tokens, 20'000'000'000u / 131072 + 1);
}

TEST(HiCache, TurnsAnImplicitFa3DecodeIntoFlashinferBefore0_5_23) {
  EXPECT_EQ(resolve({}).attention.backends.name(), "fa3+flashinfer");
  EXPECT_EQ(resolve({"--attention-backend", "fa3"}).attention.backends.name(), "fa3+flashinfer");
  EXPECT_EQ(resolve({"--hicache-io-backend", "direct"}).attention.backends.name(), "fa3");
  const Deployment named = resolve({"--decode-attention-backend", "fa3"});
  EXPECT_EQ(named.attention.backends.name(), "fa3");
  EXPECT_EQ(named.header.server_args().at("hicache_io_backend"), "direct");
  EXPECT_EQ(resolve({}, "deepseek-v2-lite").attention.backends.decode, "triton");
  EXPECT_EQ(resolve({"--sglang-version", "0.5.23"}).attention.backends.name(), "fa3");
  EXPECT_TRUE(resolve({}).graphs.prefill.tokens.empty());
  EXPECT_FALSE(resolve({"--sglang-version", "0.5.23"}).graphs.prefill.tokens.empty());
}

TEST(HiCache, MatchesLayoutAndWhatCopies) {
  const auto layout = [](const std::vector<std::string>& flags) {
    const auto rows = resolve(flags).header.server_args();
    return rows.at("hicache_io_backend") + " " + rows.at("hicache_mem_layout");
  };
  EXPECT_EQ(layout({}), "kernel layer_first");
  EXPECT_EQ(layout({"--sglang-version", "0.5.23"}), "kernel page_first");
  EXPECT_EQ(layout({"--hicache-mem-layout", "page_first_direct"}), "direct page_first_direct");
  EXPECT_EQ(layout({"--hicache-mem-layout", "page_first", "--hicache-io-backend", "direct"}),
            "direct page_first_direct");
  EXPECT_EQ(layout({"--hicache-storage-backend", "mooncake", "--hicache-storage-bandwidth", "10"}),
            "kernel page_first");
}

TEST(HiCache, RefusesInOneSentence) {
  EXPECT_THAT(refused({"--hicache-ratio", "0.5"}),
              HasSubstr("--hicache-ratio 0.5: 30017 tokens in host memory are no more than the 60032"));
  EXPECT_THAT(resolve({"--hicache-ratio", "0.5", "--sglang-version", "0.5.23"}).notes,
              Contains(HasSubstr("--hicache-ratio 0.5")));
  EXPECT_THAT(refused({"--disable-radix-cache"}), HasSubstr("leave --disable-radix-cache out"));
  EXPECT_THAT(refused({}, "gpt-oss-20b"), HasSubstr("sliding-window layers is not simulated"));
  EXPECT_THAT(refused({"--pp-size", "2"}), HasSubstr("leave --pp-size out"));
  EXPECT_THAT(refused({"--hicache-io-backend", "kernel_ascend"}), HasSubstr("use kernel or direct"));
  EXPECT_THAT(refused({"--hicache-storage-backend", "hf3fs"}), HasSubstr("say --hicache-storage-bandwidth"));
}

}  // namespace
}  // namespace hicache_test
}  // namespace tpsim::launch
