// tpsim: what answers from prices, at once.
#include "launch/commands/commands.h"
#include "launch/commands/trace/trace_commands.h"
#include "launch/plan/plan_command.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

static void add_trace_command(CLI::App& command, rank::MpiSession&, Action& action) {
  add_trace_commands(command, action);
}

constexpr LinkedCommand kCommands[] = {{"run", add_run_command},           {"compare", add_compare_command},
                                       {"plan", add_plan_command},         {"replay", add_replay_command},
                                       {"backends", add_backends_command}, {"models", add_models_command},
                                       {"trace", add_trace_command}};

const Program kProgram{"tpsim", kCommands};

}  // namespace tpsim::launch
