#include "launch/cli/flag_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

// The subcommand called `name`, or null.
const CLI::App* subcommand(const CLI::App& app, const std::string& name) {
  const auto named =
      app.get_subcommands([&name](const CLI::App* other) { return other->get_name() == name; });
  return named.empty() ? nullptr : named.front();
}

// Calls `visit` with every word that begins as a flag does, and the command that it stands behind.
template <typename Word, typename Visit>
void visit_flags(const CLI::App& root, std::span<Word> words, const Visit& visit) {
  const CLI::App* command = &root;
  for (Word& word : words) {
    if (word == "--") return;  // what follows is no flag
    if (word.starts_with('-')) {
      visit(*command, word);
    } else if (const CLI::App* next = subcommand(*command, word)) {
      command = next;
    }
  }
}

}  // namespace

void add_flag_set(CLI::App& command, Action& action, const std::function<void(FlagSet&)>& declare,
                  std::function<int(FlagSet&)> carry_out) {
  const auto flags = std::make_shared<FlagSet>(command);
  declare(*flags);
  command.callback([&action, flags, carry_out = std::move(carry_out)] {
    action = [flags, carry_out] {
      flags->read();
      return carry_out(*flags);
    };
  });
}

void refuse_repeated_flags(const CLI::App& root, std::span<const std::string> words) {
  std::map<const CLI::Option*, std::string> given;  // with the name that it was given by
  visit_flags(root, words, [&given](const CLI::App& command, const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr) return;  // a value such as -1, or refused by the parser
    const auto [first, is_first] = given.emplace(option, name);
    if (is_first) return;
    throw_user_error("{}: is given twice{}, give it once", name,
                     first->second == name ? "" : fmt::format(" (as {} before)", first->second));
  });
}

std::vector<std::string> spell_out(const CLI::App& root, std::vector<std::string> words) {
  visit_flags(root, std::span(words), [](const CLI::App& command, std::string& word) {
    const std::size_t end = std::min(word.find('='), word.size());
    if (end <= 3 || !word.starts_with("--") || command.get_option_no_throw(word.substr(0, end)) != nullptr)
      return;
    const std::string beginning = word.substr(2, end - 2);
    std::map<const CLI::Option*, std::string> meant;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& known : option->get_lnames())
        if (known.starts_with(beginning)) meant.emplace(option, known);
    }
    if (meant.size() == 1 && !begins_sglang_flag(beginning))
      word = "--" + meant.begin()->second + word.substr(end);
  });
  return words;
}

void read_words(const std::string& name, std::vector<std::string> words,
                const std::function<void(FlagSet&)>& declare) {
  CLI::App app("", name);
  FlagSet flags(app);
  declare(flags);
  words = spell_out(app, std::move(words));
  refuse_repeated_flags(app, words);
  std::reverse(words.begin(), words.end());  // CLI11 takes a stack
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw_user_error("{}", error.what());
  }
  flags.read();
}

}  // namespace tpsim::launch
