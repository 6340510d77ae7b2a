#include "launch/cli/shell_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// $NAME and ${NAME} outside of single quotes become what the environment says.
std::string with_variables(std::string_view line) {
  std::string out;
  bool literal = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\'') literal = !literal;
    const bool braced = i + 1 < line.size() && line[i + 1] == '{';
    std::size_t end = i + (braced ? 2 : 1);
    const std::size_t begin = end;
    while (end < line.size() && is_name(line[end])) ++end;
    if (c != '$' || literal || end == begin) {
      out += c;
      if (c == '\\' && !literal && i + 1 < line.size()) out += line[++i];
      continue;
    }
    const std::string name(line.substr(begin, end - begin));
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr)
      throw_user_error("${}: is not set; export it, or write its value into the launch line", name);
    out += value;
    i = braced && end < line.size() && line[end] == '}' ? end : end - 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> shell_words(std::string_view command, bool comments) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    char c = command[i];
    if (quote == 0 && is_space(c)) {
      in_word = false;
      continue;
    }
    if (comments && quote == 0 && !in_word && c == '#') {
      i = std::min(command.find('\n', i), command.size() - 1);
      continue;
    }
    // Goes on in the next line, where it ends a word only if that begins with a blank.
    if (c == '\\' && quote != '\'' && i + 1 < command.size() && command[i + 1] == '\n') {
      ++i;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      if (c == '\\' && quote != '\'' && i + 1 < command.size()) c = command[++i];
      words.back() += c;
    }
  }
  if (quote != 0) throw_user_error("the command has a {} that is not closed", quote);
  return words;
}

bool drop_program(std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 4> kModules = {"sglang.launch_server", "sglang_router.launch_router",
                                                        "sglang_router.launch_server", "serve"};
  const auto starts = [&](const std::string& word) {
    return std::ranges::find(kModules, word) != kModules.end() || word.ends_with("launch_server.py") ||
           word.ends_with("launch_router.py");
  };
  const auto start = std::ranges::find_if(words, starts);
  if (start == words.end()) return false;
  words.erase(words.begin(), start + 1);
  return true;
}

std::vector<std::string> launch_flags(std::string_view line) {
  std::vector<std::string> words = shell_words(with_variables(line), /*comments=*/true);
  drop_program(words);
  return words;
}

}  // namespace tpsim::launch
