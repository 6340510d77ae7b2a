// tpsim-trace: makes, shows and converts workloads.
#include "launch/commands/trace/trace_commands.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

static void add_trace_command(CLI::App& command, rank::MpiSession&, Action& action) {
  add_trace_commands(command, action);
}

constexpr LinkedCommand kCommands[] = {{"trace", add_trace_command}};

const Program kProgram{"tpsim-trace", kCommands};

}  // namespace tpsim::launch
