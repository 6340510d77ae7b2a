// A command of the program whose arguments come from a FlagSet.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "launch/commands.h"
#include "launch/flag_set.h"

namespace tpsim::launch {

// Adds the subcommand `name` to `root`. `declare(CLI::App&, FlagSet&, Args&)` adds its flags, which are read
// into an Args of the command's own; `carry_out(Args&, FlagSet&)` returns the exit status, after all were
// read. `root` and `action` must outlive the action.
template <typename Args, typename Declare, typename CarryOut>
void add_flag_command(CLI::App& root, const std::string& name, const std::string& description, Action& action,
                      Declare declare, CarryOut carry_out) {
  CLI::App* const command = root.add_subcommand(name, description);
  const auto args = std::make_shared<Args>();
  const auto flags = std::make_shared<FlagSet>(*command);
  declare(*command, *flags, *args);
  command->callback([&action, args, flags, carry_out = std::move(carry_out)] {
    action = [args, flags, carry_out] {
      flags->read();
      return carry_out(*args, *flags);
    };
  });
}

}  // namespace tpsim::launch
