#include "launch/cli/pasted_line.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tpsim::launch {
namespace {

bool is_variable(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return name.size() < word.size() && !name.empty() &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), fits);
}

// Words of `words` that start a server; 0: they do not.
std::size_t launcher(std::span<char* const> words) {
  if (words.size() >= 2 && std::string_view(words[0]) == "sglang" &&
      (std::string_view(words[1]) == "serve" || std::string_view(words[1]) == "generate"))
    return 2;
  if (words.size() < 3 || std::string_view(words[1]) != "-m") return 0;
  std::string_view python = words[0];
  python.remove_prefix(python.find_last_of('/') + 1);
  const std::string_view module = words[2];
  return python.starts_with("python") &&
                 (module == "sglang.launch_server" || module == "sglang_router.launch_server")
             ? 3
             : 0;
}

bool starts_container(std::span<char* const> words) {
  std::size_t at = std::string_view(words[0]) == "sudo" ? 1 : 0;
  const std::string_view program = words[at];
  return (program == "docker" || program == "podman") && at + 1 < words.size() &&
         std::string_view(words[at + 1]) == "run";
}

}  // namespace

PastedLine pasted_line(std::span<char* const> words) {
  PastedLine line;
  std::size_t at = 0;
  while (at < words.size() && is_variable(words[at])) line.environment.emplace_back(words[at++]);
  // What a container is started with, but for its variables, says nothing of the server in it.
  if (at + 1 < words.size() && starts_container(words.subspan(at))) {
    while (++at < words.size() && launcher(words.subspan(at)) == 0) {
      const std::string_view before = words[at - 1];
      if ((before == "-e" || before == "--env") && is_variable(words[at]))
        line.environment.emplace_back(words[at]);
    }
  }
  const std::size_t starts = launcher(words.subspan(at));
  if (starts == 0) return {};
  line.words = at + starts;
  return line;
}

}  // namespace tpsim::launch
