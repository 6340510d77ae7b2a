#include "launch/cli/sglang_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <string>

#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch::sglang_flags_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Verdict = SglangFlag::Verdict;
using Values = SglangFlag::Values;

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> words = {"--model-path", "m", "--hardware", "h", "--trace", "t"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::map<std::string, std::string> recorded_flags() {
  std::ifstream file(TPSIM_SOURCE_DIR "/tests/golden/sglang/server_args_0.5.23.txt");
  std::string line;
  std::getline(file, line);  // a comment
  std::map<std::string, std::string> flags;
  std::string name, values;
  while (file >> name >> values) flags[name] = values;
  return flags;
}

// Every flag of SGLang's server is one of tpsim's own, means nothing here, or is refused with a reason.
TEST(SglangFlags, EveryFlagOfTheServerIsDecided) {
  CLI::App app("test", "run");
  FlagSet flags(app);
  ServerArgs args;
  declare_server_flags(flags, args, /*compare=*/false);
  const std::map<std::string, std::string> recorded = recorded_flags();
  ASSERT_GT(recorded.size(), 500u);
  std::size_t own = 0;
  for (const auto& [name, values] : recorded) {
    const std::optional<SglangFlag> flag = find_sglang_flag(name);
    if (app.get_option_no_throw("--" + name) != nullptr) {
      ++own;
      EXPECT_FALSE(flag) << name << " is a flag of tpsim's own";
      continue;
    }
    ASSERT_TRUE(flag) << name;
    const std::map<std::string, Values> kValues = {{"none", Values::kNone},
                                                   {"one", Values::kOne},
                                                   {"many", Values::kMany},
                                                   {"one_or_none", Values::kOneOrNone}};
    EXPECT_EQ(flag->values, kValues.at(values)) << name;
    EXPECT_EQ(flag->reason.empty(), flag->verdict != Verdict::kRefused) << name;
  }
  EXPECT_GT(own, 20u);
}

// The whole line of each, as a user would give it.
TEST(SglangFlags, EveryFlagIsAcceptedOrRefusedInOneSentence) {
  for (const auto& [name, values] : recorded_flags()) {
    const std::optional<SglangFlag> flag = find_sglang_flag(name);
    if (!flag) continue;
    std::vector<std::string> words = {"--" + name};
    if (values != "none") words.push_back("x");
    if (values == "many") words.push_back("y");
    words.push_back("--quiet");
    if (flag->verdict == Verdict::kRefused) {
      EXPECT_EQ(refusal(with(words)), "--" + name + ": " + std::string(flag->reason));
    } else {
      const ServerArgs args = parse(with(words));
      EXPECT_TRUE(args.quiet) << name;
      EXPECT_EQ(args.ignored_flags.size(), flag->verdict == Verdict::kIgnored ? 1u : 0u) << name;
    }
  }
}

TEST(SglangFlags, ALaunchLineIsTakenAsItIs) {
  const ServerArgs args = parse(with({"--host",
                                      "0.0.0.0",
                                      "--port=30000",
                                      "--trust-remote-code",
                                      "--tp",
                                      "8",
                                      "--log-requests-target",
                                      "stdout",
                                      "/tmp",
                                      "--dp-size",
                                      "1",
                                      "--pp-size=1",
                                      "--nnodes",
                                      "1",
                                      "--node-rank",
                                      "0",
                                      "--offload-group-size",
                                      "-1",
                                      "--disable-hybrid-swa-memory",
                                      "--model-checksum",
                                      "--device",
                                      "cuda",
                                      "--served-model-name",
                                      "run"}));
  EXPECT_THAT(args.ignored_flags,
              ElementsAre("--host", "--port", "--trust-remote-code", "--log-requests-target",
                          "--model-checksum", "--served-model-name"));
  EXPECT_EQ(args.tp_size, 8u);
}

TEST(SglangFlags, MistakesAreStillMistakes) {
  EXPECT_EQ(refusal(with({"--port"})), "--port: needs a value");
  EXPECT_EQ(refusal(with({"--host", "--quiet"})), "--host: needs a value");
  EXPECT_EQ(refusal(with({"--trust-remote-code=yes"})), "--trust-remote-code: takes no value");
  EXPECT_THAT(refusal(with({"--trust-remote-code", "yes"})), HasSubstr("yes: `tpsim run` takes flags only"));
  EXPECT_EQ(refusal(with({"--node-rank", "1"})),
            "--node-rank: all nodes are simulated at once; give the first node's command, of --node-rank 0");
  // A flag of a release to come.
  EXPECT_THAT(refusal(with({"--speculative-magic", "2"})), HasSubstr("speculative decoding"));
}

}  // namespace
}  // namespace tpsim::launch::sglang_flags_test
