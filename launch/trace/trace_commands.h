// `tpsim trace generate | inspect | convert`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tpsim::launch {

// What a chosen subcommand does; its result is the exit status. It may throw UserError.
using TraceAction = std::function<int()>;

// Adds the subcommand `trace` with its own subcommands to `app`. When one of them is given on the command
// line, its action is handed to `set_action` at the end of parsing; nothing is carried out before.
void add_trace_commands(CLI::App& app, const std::function<void(TraceAction)>& set_action);

}  // namespace tpsim::launch
