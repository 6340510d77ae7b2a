#include "launch/cli/shell_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>

#include "launch/cli/sglang_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// What the environment says of the variable, $NAME or ${NAME}, at `at`, which is moved to its last character;
// nothing where there is none.
std::optional<std::string> variable(std::string_view command, std::size_t& at) {
  const bool braced = at + 1 < command.size() && command[at + 1] == '{';
  const std::size_t begin = at + (braced ? 2 : 1);
  std::size_t end = begin;
  while (end < command.size() && is_name(command[end])) ++end;
  if (end == begin) return std::nullopt;
  const std::string name(command.substr(begin, end - begin));
  const char* const value = std::getenv(name.c_str());
  at = braced && end < command.size() && command[end] == '}' ? end : end - 1;
  return value == nullptr ? kUnsetVariable + name : value;
}

// Whether the value of a flag changes nothing, so that a documentation's ${local_ip} will do.
bool means_nothing(std::string_view flag) {
  if (!flag.starts_with("--")) return false;
  const std::string_view name = flag.substr(2, flag.find('=') - 2);
  for (const SglangProgram program : {SglangProgram::kServer, SglangProgram::kRouter}) {
    const std::optional<SglangFlag> known = find_sglang_flag(name, program);
    if (known && known->verdict == SglangFlag::Verdict::kIgnored) return true;
  }
  return name == "disaggregation-ib-device";  // that there is one, not which
}

void check_unset(std::vector<std::string>& words) {
  std::string_view flag;
  for (std::string& word : words) {
    if (word.starts_with("--")) flag = word;
    const std::size_t at = word.find(kUnsetVariable);
    if (at == std::string::npos) continue;
    if (!means_nothing(flag)) {
      const std::size_t end =
          std::ranges::find_if_not(word.begin() + static_cast<std::ptrdiff_t>(at) + 1, word.end(), is_name) -
          word.begin();
      throw_user_error("${}: is not set; export it, or write its value into the launch line",
                       word.substr(at + 1, end - at - 1));
    }
    std::ranges::replace(word, kUnsetVariable, '$');
  }
}

}  // namespace

std::vector<std::string> shell_words(std::string_view command, bool script) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  const auto add = [&](char c) {
    if (!in_word) words.emplace_back();
    in_word = true;
    words.back() += c;
  };
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < command.size();
    if (quote == 0 && is_space(c)) {
      in_word = false;
    } else if (script && quote == 0 && !in_word && c == '#') {
      i = std::min(command.find('\n', i), command.size() - 1);
    } else if (escapes && command[i + 1] == '\n') {
      ++i;  // goes on in the next line
    } else if (escapes) {
      add(command[++i]);
    } else if (quote == 0 ? c == '\'' || c == '"' : c == quote) {
      quote = quote == 0 ? c : '\0';
      if (!in_word) words.emplace_back();
      in_word = true;
    } else if (const auto value = script && quote != '\'' && c == '$' ? variable(command, i) : std::nullopt) {
      for (const char of_value : *value) {
        if (quote == 0 && is_space(of_value))
          in_word = false;
        else
          add(of_value);
      }
    } else {
      add(c);
    }
  }
  if (quote != 0) throw_user_error("the command has a {} that is not closed", quote);
  return words;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_command(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

bool drop_program(std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 4> kModules = {"sglang.launch_server", "sglang_router.launch_router",
                                                        "sglang_router.launch_server", "serve"};
  if (words.empty() || words.front().starts_with('-')) return false;  // "serve" is a value there
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
  std::vector<std::string> words = shell_words(line, /*script=*/true);
  drop_program(words);
  check_unset(words);
  return words;
}

}  // namespace tpsim::launch
