#include "launch/cli/flag_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "launch/cli/repeated_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {

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

void read_words(const std::string& name, std::vector<std::string> words,
                const std::function<void(FlagSet&)>& declare) {
  CLI::App app("", name);
  FlagSet flags(app);
  declare(flags);
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
