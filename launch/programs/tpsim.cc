// tpsim: what answers from prices, at once.
#include "launch/commands/commands.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {
    {"run", add_run_command},       {"compare", add_compare_command},
    {"replay", add_replay_command}, {"backends", add_backends_command},
    {"models", add_models_command}, {"completion", add_completion_command}};

const Program kProgram{"tpsim", kCommands};

}  // namespace tpsim::launch
