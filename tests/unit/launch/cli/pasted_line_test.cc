#include "launch/cli/pasted_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tpsim::launch::pasted_line_test {
namespace {

PastedLine pasted(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return pasted_line(pointers);
}

TEST(PastedLine, IsWhatStandsInFrontOfTheFlags) {
  EXPECT_EQ(pasted({"python3", "-m", "sglang.launch_server", "--tp", "8"}).words, 3u);
  EXPECT_EQ(pasted({"/usr/bin/python3.12", "-m", "sglang_router.launch_server", "--tp", "8"}).words, 3u);
  EXPECT_EQ(pasted({"sglang", "serve", "--model-path", "m"}).words, 2u);
  const PastedLine line =
      pasted({"SGLANG_X=1", "CUDA_VISIBLE_DEVICES=0,1", "python", "-m", "sglang.launch_server"});
  EXPECT_EQ(line.words, 5u);
  EXPECT_THAT(line.environment, testing::ElementsAre("SGLANG_X=1", "CUDA_VISIBLE_DEVICES=0,1"));
}

TEST(PastedLine, MayStandInAContainer) {
  const PastedLine line = pasted({"sudo", "docker", "run", "--gpus", "all", "-e", "A=1", "--env", "B=2", "-v",
                                  "a=b", "image", "python3", "-m", "sglang.launch_server", "--tp", "8"});
  EXPECT_EQ(line.words, 15u);
  EXPECT_THAT(line.environment, testing::ElementsAre("A=1", "B=2"));
  EXPECT_EQ(pasted({"docker", "run", "image"}).words, 0u);
  EXPECT_EQ(pasted({"docker", "ps", "python3", "-m", "sglang.launch_server"}).words, 0u);
}

TEST(PastedLine, OtherWordsAreLeftToTheParser) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"--tp", "8"},
                                             {"X=1"},
                                             {"X=1", "--tp"},
                                             {"python3", "-m", "vllm"},
                                             {"python3"},
                                             {"sglang"},
                                             {"x y=1"}}) {
    const PastedLine line = pasted(words);
    EXPECT_EQ(line.words, 0u);
    EXPECT_TRUE(line.environment.empty());
  }
}

}  // namespace
}  // namespace tpsim::launch::pasted_line_test
