// `tpsim trace generate | inspect | convert`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tpsim::launch {

// What a chosen subcommand does; its result is the exit status. It may throw UserError.
using TraceAction = std::function<int()>;

// Adds the subcommands of `trace`. When one of them is given on the command line, its action is handed to
// `set_action` at the end of parsing; nothing is carried out before.
void add_trace_commands(CLI::App& trace, const std::function<void(TraceAction)>& set_action);

}  // namespace tpsim::launch
