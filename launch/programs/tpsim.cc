// tpsim: what answers from prices, at once.
#include "launch/commands/commands.h"
#include "launch/commands/trace/trace_commands.h"
#include "launch/diffusion/diffusion_commands.h"
#include "launch/plan/plan_command.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

static void add_trace_command(CLI::App& command, rank::MpiSession&, Action& action) {
  add_trace_commands(command, action);
}

constexpr LinkedCommand kCommands[] = {{"run", add_run_command, add_pipeline_run},
                                       {"compare", add_compare_command, add_pipeline_compare},
                                       {"plan", add_plan_command},
                                       {"generate", nullptr, add_pipeline_generate},
                                       {"replay", add_replay_command},
                                       {"backends", add_backends_command, add_pipeline_backends},
                                       {"models", add_models_command},
                                       {"trace", add_trace_command},
                                       {"completion", add_completion_command}};

const Program kProgram{"tpsim", kCommands};

}  // namespace tpsim::launch
