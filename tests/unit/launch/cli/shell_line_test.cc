#include "launch/cli/shell_line.h"

#include <gtest/gtest.h>

#include <random>

namespace tpsim::launch::shell_line_test {

TEST(ShellLine, WordsComeBackAsTheyWere) {
  EXPECT_EQ(shell_command(std::vector<std::string>{"--tp", "8", "--decode-args=--tp 4", "", "it's"}),
            R"(--tp 8 '--decode-args=--tp 4' '' 'it'\''s')");
  std::mt19937 random(1);
  constexpr std::string_view kLetters = "ab-=,.'\"\\ $#\t{}*~&;|<>";
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> words(1 + random() % 4);
    for (std::string& word : words) {
      for (std::size_t n = random() % 8; n > 0; --n) word += kLetters[random() % kLetters.size()];
    }
    EXPECT_EQ(shell_words(shell_command(words)), words);
  }
}

}  // namespace tpsim::launch::shell_line_test
