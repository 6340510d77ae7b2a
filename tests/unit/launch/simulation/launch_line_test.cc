#include "launch/simulation/launch_line.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "launch/simulation/sweep.h"
#include "rank/config/catalogue_models.h"
#include "rank/config/model_config.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch::launch_line_test {
namespace {

// Of `tpsim compare` with these flags: one command a setting.
std::vector<std::string> launched(std::vector<std::string> words) {
  CLI::App app{"test", "compare"};
  FlagSet flags(app);
  ServerArgs args;
  declare_server_flags(flags, args, /*compare=*/true);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  flags.read();
  std::vector<std::string> commands;
  for (const Setting& setting : expand_sweep(flags, args).settings)
    for (const std::string& command : launch_commands(setting.args)) commands.push_back(command);
  return commands;
}

// Flags of SGLang 0.5.23's parser, with how many values each takes.
std::map<std::string, std::string> recorded() {
  std::ifstream file(TPSIM_SOURCE_DIR "/tests/golden/sglang/server_args_0.5.23.txt");
  std::string name, values;
  std::getline(file, name);  // a comment
  std::map<std::string, std::string> flags;
  while (file >> name >> values) flags["--" + name] = values;
  return flags;
}

TEST(LaunchLine, HoldsWhatWasGivenToTheServer) {
  const std::vector<std::string> commands = launched({"--model-path",
                                                      "llama-3.1-70b",
                                                      "--hardware",
                                                      "h200-sxm",
                                                      "--trace",
                                                      "t",
                                                      "--tp",
                                                      "4,8",
                                                      "--attention-backends",
                                                      "fa3,flashinfer+fa3",
                                                      "--enable-mixed-chunk",
                                                      "--cuda-graph-bs",
                                                      "1",
                                                      "8",
                                                      "--launch-queue",
                                                      "0",
                                                      "--request-rate",
                                                      "2",
                                                      "--mem-fraction-static",
                                                      "0.8"});
  ASSERT_EQ(commands.size(), 4u);
  EXPECT_EQ(
      commands[0],
      "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B-Instruct --tp-size 4 "
      "--attention-backend fa3 --mem-fraction-static 0.8 --enable-mixed-chunk --cuda-graph-bs-decode 1 8");
  EXPECT_EQ(commands[3],
            "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B-Instruct --tp-size 8 "
            "--prefill-attention-backend flashinfer --decode-attention-backend fa3 --mem-fraction-static 0.8 "
            "--enable-mixed-chunk --cuda-graph-bs-decode 1 8");
}

TEST(LaunchLine, ReplicasStandBehindTheRouter) {
  const std::vector<std::string> commands =
      launched({"--model-path", "My Models/x", "--hardware", "h200-sxm", "--trace", "t", "--tp", "4,2",
                "--dp-size", "2", "--router-policy", "cache_aware", "--vlm-cache-size-mb", "100"});
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0],
            "SGLANG_VLM_CACHE_SIZE_MB=100 python3 -m sglang_router.launch_server --model-path 'My Models/x' "
            "--tp-size 4 --dp-size 2 --router-policy cache_aware");
}

TEST(LaunchLine, ClassesThatComeWithTheCheckpointAreTrusted) {
  const std::vector<std::string> commands =
      launched({"--model-path", "ling-mini-2.0", "--hardware", "h200-sxm", "--trace", "t", "--tp", "1,2"});
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0],
            "python3 -m sglang.launch_server --model-path inclusionAI/Ling-mini-2.0 --trust-remote-code "
            "--tp-size 1");
}

TEST(LaunchLine, ReplicasOfSeveralHostsAreServersOfTheirOwn) {
  const std::vector<std::string> commands =
      launched({"--model-path", "m", "--hardware", "h200-sxm", "--trace", "t", "--tp", "4", "--dp-size", "3",
                "--router-policy", "cache_aware", "--router-cache-threshold", "0.5", "--page-size", "16,64"});
  ASSERT_EQ(commands.size(), 2u * 4);
  EXPECT_EQ(commands[0],
            "python3 -m sglang.launch_server --model-path m --tp-size 4 --page-size 16 --base-gpu-id 0 "
            "--host host1 --port 30000");
  EXPECT_EQ(commands[1],
            "python3 -m sglang.launch_server --model-path m --tp-size 4 --page-size 16 --base-gpu-id 4 "
            "--host host1 --port 30001");
  EXPECT_EQ(commands[2],
            "python3 -m sglang.launch_server --model-path m --tp-size 4 --page-size 16 --base-gpu-id 0 "
            "--host host2 --port 30000");
  EXPECT_EQ(commands[3],
            "python3 -m sglang_router.launch_router --worker-urls http://host1:30000 http://host1:30001 "
            "http://host2:30000 --cache-threshold 0.5 --policy cache_aware");
}

TEST(LaunchLine, PairsAreServersAndTheirRouter) {
  const std::vector<std::string> commands = launched({"--model-path",
                                                      "m",
                                                      "--hardware",
                                                      "h200-sxm",
                                                      "--trace",
                                                      "t",
                                                      "--tp",
                                                      "4",
                                                      "--pd-disaggregation",
                                                      "--prefill",
                                                      "1,2",
                                                      "--decode-args",
                                                      "--tp 8 --cuda-graph-max-bs 64",
                                                      "--decode-policy",
                                                      "round_robin",
                                                      "--router-policy",
                                                      "random",
                                                      "--num-reserved-decode-tokens",
                                                      "64",
                                                      "--kv-link",
                                                      "network"});
  ASSERT_EQ(commands.size(), 3u + 4u);
  EXPECT_EQ(commands[0],
            "python3 -m sglang.launch_server --model-path m --tp-size 4 --disaggregation-mode prefill "
            "--base-gpu-id 0 --host host1 --port 30000 --disaggregation-bootstrap-port 8998");
  EXPECT_EQ(
      commands[1],
      "python3 -m sglang.launch_server --model-path m --tp-size 4 --num-reserved-decode-tokens 64 "
      "--disaggregation-mode decode --tp 8 --cuda-graph-max-bs-decode 64 --base-gpu-id 0 --host host2 --port "
      "30000");
  EXPECT_EQ(
      commands[2],
      "python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://host1:30000 8998 --decode "
      "http://host2:30000 --decode-policy round_robin --policy random");
  EXPECT_NE(
      commands[6].find(" --prefill http://host1:30000 8998 --prefill http://host1:30001 8999 --decode "),
      std::string::npos);
}

TEST(LaunchLine, SwitchesOfAListAreGivenOrNot) {
  const std::vector<std::string> commands =
      launched({"--model-path", "m", "--hardware", "h200-sxm", "--trace", "t",
                "--enable-mixed-chunk=true,false", "--seed", "3"});
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0], "python3 -m sglang.launch_server --model-path m --enable-mixed-chunk");
  EXPECT_EQ(commands[1], "python3 -m sglang.launch_server --model-path m");
}

TEST(LaunchLine, OlderReleasesHaveTheirNames) {
  const std::vector<std::string> commands =
      launched({"--model-path", "m", "--hardware", "h200-sxm", "--trace", "t", "--sglang-version",
                "0.5.12,0.5.23", "--attn-dp-size", "8", "--cuda-graph-max-bs", "64", "--tp", "8"});
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0],
            "python3 -m sglang.launch_server --model-path m --tp-size 8 --dp-size 8 --enable-dp-attention "
            "--cuda-graph-max-bs 64");
  EXPECT_EQ(commands[1],
            "python3 -m sglang.launch_server --model-path m --tp-size 8 --attn-dp-size 8 "
            "--cuda-graph-max-bs-decode 64");
}

// Whatever list is given to whatever flag: the command has flags of SGLang 0.5.23's own parser, or of its
// router, with as many values as these take, and `tpsim run` reads them back.
TEST(LaunchLine, IsOfSglangsOwnFlags) {
  const std::map<std::string, std::string> known = recorded();
  ASSERT_GT(known.size(), 500u);
  const std::map<std::string, std::vector<std::string>> choices = {
      {"--tp-size", {"1", "2", "4", "8"}},
      {"--ep-size", {"1", "8"}},
      {"--moe-a2a-backend", {"none", "deepep"}},
      {"--attn-dp-size", {"2", "8"}},
      {"--page-size", {"1", "64"}},
      {"--kv-cache-dtype", {"auto", "fp8_e4m3"}},
      {"--chunked-prefill-size", {"-1", "4096"}},
      {"--schedule-policy", {"lpm", "fcfs"}},
      {"--nsa-decode-backend", {"fa3"}},
      {"--cuda-graph-max-bs", {"64", "128"}},
      {"--dp-size", {"1", "4"}},
      {"--router-policy", {"random", "round_robin"}},
      {"--expert-distribution", {"balanced"}},
      {"--quantization", {"fp8"}},
      {"--stream-interval", {"4"}},
      {"--mamba-radix-cache-strategy", {"no_buffer"}},
      {"--kernel-launch-us", {"5"}},
      {"--attention-backends", {"fa3", "flashinfer+fa3", "triton"}}};
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::string> words = {"--model-path", "m", "--hardware",        "h200-sxm",
                                      "--trace",      "t", "--max-concurrency", "1,2"};
    for (const auto& [flag, values] : choices) {
      if (random() % 2 == 0) continue;
      words.insert(words.end(), {flag, values[random() % values.size()]});
    }
    for (const char* flag : {"--enable-mixed-chunk", "--disable-radix-cache", "--disable-overlap-schedule"}) {
      if (random() % 2 == 0) words.emplace_back(flag);
    }
    const std::string command = launched(words).at(0);
    std::istringstream text(command);
    std::string word, flag;
    std::map<std::string, int> values;
    std::vector<std::string> read_back;
    while (text >> word) {
      if (word.starts_with("--"))
        values[flag = word] = 0;
      else if (!flag.empty())
        ++values[flag];
      if (!flag.empty()) read_back.push_back(word);
    }
    for (const auto& [name, count] : values) {
      if (name.starts_with("--router-")) continue;
      ASSERT_TRUE(known.contains(name)) << command;
      EXPECT_EQ(count, known.at(name) == "none" ? 0 : 1) << command;
    }
    read_back.insert(read_back.end(), {"--hardware", "h200-sxm", "--trace", "t"});
    EXPECT_EQ(refusal(read_back), "accepted") << command;
  }
}

// A name of the catalogue is launched by an id that means the same model here.
TEST(LaunchLine, HubIdsAreOfTheirModels) {
  int known = 0;
  for (const std::string& name : rank::model_catalogue()) {
    const std::string id = rank::hub_id(name);
    if (id == name) continue;
    ++known;
    EXPECT_EQ(rank::catalogue_key(id), rank::catalogue_key(name)) << id;
    EXPECT_EQ(rank::hub_id(id), id);
  }
  EXPECT_GT(known, 40);
}

}  // namespace
}  // namespace tpsim::launch::launch_line_test
