// A release newer than all others: what is answered for those stays, for no code asks which is the newest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "launch/deployment/resolve.h"
#include "scheduler/releases/sglang_release.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Deployment resolve(const std::string& release, const std::string& model,
                   const std::string& hardware = "h200-sxm", const std::string& tp = "8") {
  const std::vector<std::string> words = {"--model-path", model, "--hardware",       hardware, "--trace", "t",
                                          "--tp",         tp,    "--sglang-version", release};
  return resolve_deployments(parse(words), false).at(0);
}

TEST(Releases, ANewOneIsKnownByItsNameAndNotTheDefault) {
  EXPECT_EQ(
      parse({"--model-path", "m", "--hardware", "h200-sxm", "--trace", "t", "--sglang-version", "9.9.9"})
          .sglang_release.name,
      "9.9.9");
  EXPECT_EQ(ServerArgs().sglang_release.name, "0.5.23");
}

// server_args.py of the releases: no_buffer and no overlap before 0.5.14, snapshots since.
TEST(Releases, StatesOfDeltaNetsAreCachedAsBefore) {
  const std::string model = "qwen3-next-80b-a3b";
  EXPECT_FALSE(resolve("0.5.12", model).scheduler.disable_radix_cache);
  EXPECT_TRUE(resolve("0.5.12", model).scheduler.disable_overlap_schedule);
  EXPECT_EQ(resolve("0.5.12", model).scheduler.states.tracking_slots, 0U);
  for (const char* release : {"0.5.14", "0.5.16", "0.5.23", "9.9.9"}) {
    EXPECT_FALSE(resolve(release, model).scheduler.disable_radix_cache) << release;
    EXPECT_FALSE(resolve(release, model).scheduler.disable_overlap_schedule) << release;
    EXPECT_EQ(resolve(release, model).scheduler.states.tracking_slots, 2U) << release;
  }
  EXPECT_EQ(resolve("9.9.9", model).notes, resolve("0.5.23", model).notes);
}

bool captures_prefill(const std::string& release, const std::string& model, const std::string& hardware) {
  return !resolve(release, model, hardware).graphs.prefill.tokens.empty();
}

TEST(Releases, PrefillIsCapturedSince0510) {
  EXPECT_FALSE(captures_prefill("0.5.6", "qwen3-235b-a22b", "h200-sxm"));
  EXPECT_FALSE(captures_prefill("0.5.8", "qwen3-235b-a22b", "h200-sxm"));
  EXPECT_TRUE(captures_prefill("0.5.10", "qwen3-235b-a22b", "h200-sxm"));
}

TEST(Releases, PiecesOfPrefillLeaveSomeOut) {
  // TensorRT-LLM's experts until 0.5.14.
  EXPECT_FALSE(captures_prefill("0.5.12", "qwen3-235b-a22b", "b200"));
  EXPECT_TRUE(captures_prefill("0.5.14", "qwen3-235b-a22b", "b200"));
  // torch.compile's pieces: Qwen3-Next; pieces cut by hand: MLA.
  EXPECT_FALSE(captures_prefill("0.5.14", "qwen3-next-80b-a3b", "h200-sxm"));
  EXPECT_TRUE(captures_prefill("0.5.15", "qwen3-next-80b-a3b", "h200-sxm"));
  EXPECT_TRUE(captures_prefill("0.5.14", "deepseek-v3", "h200-sxm"));
  EXPECT_FALSE(captures_prefill("0.5.16", "deepseek-v3", "h200-sxm"));
  // Qwen3.5 is multimodal to SGLang.
  EXPECT_FALSE(captures_prefill("0.5.15", "qwen3.5-397b-a17b", "b200"));
  EXPECT_TRUE(captures_prefill("0.5.16", "qwen3.5-397b-a17b", "b200"));
}

TEST(Releases, ExpertsOf16BitRunTensorRtLlmsKernelsSince058) {
  const auto chosen = [](const char* release, const char* model) {
    return resolve(release, model, "b200").model.facts.trtllm_experts;
  };
  EXPECT_EQ(chosen("0.5.6", "qwen3-235b-a22b"), rank::TrtllmExperts::kFp8OrNvfp4);
  EXPECT_EQ(chosen("0.5.8", "qwen3-235b-a22b"), rank::TrtllmExperts::k16BitFp8OrNvfp4);
  EXPECT_EQ(chosen("0.5.6", "glm-4.6"), rank::TrtllmExperts::kNone);
  EXPECT_EQ(chosen("0.5.8", "glm-4.6"), rank::TrtllmExperts::kNvfp4);
}

TEST(Releases, RoutersWithoutAKernelAreCompiled) {
  const auto compiled = [](const char* release, const char* model, const char* tp = "8") {
    const rank::ArchitectureFacts facts = resolve(release, model, "h200-sxm", tp).model.facts;
    return std::pair(facts.compiled_router, facts.compiled_router_beside_shared);
  };
  const std::pair always(true, true), beside_shared(false, true), never(false, false);
  EXPECT_EQ(compiled("0.5.8", "glm-4.5-air"), always);
  EXPECT_EQ(compiled("0.5.12", "glm-4.5-air"), beside_shared);
  EXPECT_EQ(compiled("0.5.23", "glm-4.5-air"), never);  // nine of a token, the shared one among them
  EXPECT_EQ(compiled("0.5.23", "glm-4.7-flash", "4"), beside_shared);  // five: profiled
  EXPECT_EQ(compiled("0.5.12", "mimo-v2-flash"), never);               // has no shared one
  EXPECT_EQ(compiled("0.5.6", "deepseek-v3"), never);                  // in groups
  EXPECT_EQ(compiled("0.5.6", "qwen3-235b-a22b"), never);
}

TEST(Releases, WindowPoolsAreSizedAsBefore) {
  const auto others = Contains(HasSubstr("window layers' pool follows the rules of 0.5.23"));
  EXPECT_THAT(resolve("0.5.12", "gpt-oss-120b").notes, others);
  for (const char* release : {"0.5.23", "9.9.9"})
    EXPECT_THAT(resolve(release, "gpt-oss-120b").notes, Not(others)) << release;
}

TEST(Releases, ARuleOfTheNewOneIsItsOwn) {
  const auto chunk = [](const char* release) {
    return resolve(release, "llama-3.1-8b", "rtx-4090").scheduler.chunked_prefill_size;
  };
  EXPECT_EQ(chunk("0.5.23"), 4096U);
  EXPECT_EQ(chunk("9.9.9"), chunk("0.5.14"));
  EXPECT_LT(chunk("9.9.9"), 4096U);
}

}  // namespace
}  // namespace tpsim::launch
