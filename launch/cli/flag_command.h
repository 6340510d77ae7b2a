// A command of the program whose arguments come from a FlagSet.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/action.h"
#include "launch/cli/flag_set.h"

namespace tpsim::launch {

// Adds the flags that `declare` adds to `command`; `carry_out` returns the exit status, after all were read.
// `command` and `action` must outlive the action.
void add_flag_set(CLI::App& command, Action& action, const std::function<void(FlagSet&)>& declare,
                  std::function<int(FlagSet&)> carry_out);

// The same with an Args of the command's own, which `declare(FlagSet&, Args&)` has the flags read into and
// `carry_out(Args&, FlagSet&)` takes.
template <typename Args, typename Declare, typename CarryOut>
void add_flag_command(CLI::App& command, Action& action, Declare declare, CarryOut carry_out) {
  const auto args = std::make_shared<Args>();
  add_flag_set(
      command, action, [&](FlagSet& flags) { declare(flags, *args); },
      [args, carry_out = std::move(carry_out)](FlagSet& flags) { return carry_out(*args, flags); });
}

// The flags of the command `name` from a list of words instead of a command line: the same sentences. Throws
// UserError.
void read_words(const std::string& name, std::vector<std::string> words,
                const std::function<void(FlagSet&)>& declare);

// A flag that is given twice is a slip: two values cannot both count, and neither would be a choice to rely
// on. `words`: the command line after the name of the program, where `root` has its subcommands. Throws
// UserError naming a flag that stands there twice, also under two of its names or with --flag=value.
void refuse_repeated_flags(const CLI::App& root, std::span<const std::string> words);

// `words`, as above, with flags spelt out of which only the beginning was given, where one flag alone begins
// so, as Python's argparse takes SGLang's: --mem-fraction for --mem-fraction-static.
std::vector<std::string> spell_out(const CLI::App& root, std::vector<std::string> words);

}  // namespace tpsim::launch
