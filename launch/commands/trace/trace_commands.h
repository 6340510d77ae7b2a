// `tpsim trace generate | inspect | convert`.
#pragma once

#include "launch/cli/action.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// Adds the subcommands of `trace`. When one of them is given on the command line, `action` becomes what
// carries it out at the end of parsing; it may throw UserError. `action` must outlive the parsing.
void add_trace_commands(CLI::App& trace, Action& action);

}  // namespace tpsim::launch
