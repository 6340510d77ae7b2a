// A release newer than all others: what is answered for those stays, for no code asks which is the newest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
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
                   const std::string& hardware = "h200-sxm") {
  const std::vector<std::string> words = {"--model-path", model, "--hardware",       hardware, "--trace", "t",
                                          "--tp",         "8",   "--sglang-version", release};
  return resolve_deployments(parse(words), false).at(0);
}

TEST(Releases, ANewOneIsKnownByItsNameAndNotTheDefault) {
  EXPECT_EQ(
      parse({"--model-path", "m", "--hardware", "h200-sxm", "--trace", "t", "--sglang-version", "9.9.9"})
          .sglang_release.name,
      "9.9.9");
  EXPECT_EQ(ServerArgs().sglang_release.name, "0.5.23");
}

TEST(Releases, StatesOfDeltaNetsAreCachedAsBefore) {
  const std::string model = "qwen3-next-80b-a3b";
  const auto off = Contains(HasSubstr("keeps the states of gated delta-net layers as SGLang 0.5.23 does"));
  EXPECT_THAT(resolve("0.5.14", model).notes, off);
  EXPECT_TRUE(resolve("0.5.14", model).scheduler.disable_radix_cache);
  for (const char* release : {"0.5.23", "9.9.9"}) {
    EXPECT_THAT(resolve(release, model).notes, Not(off)) << release;
    EXPECT_FALSE(resolve(release, model).scheduler.disable_radix_cache) << release;
  }
  EXPECT_EQ(resolve("9.9.9", model).notes, resolve("0.5.23", model).notes);
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
