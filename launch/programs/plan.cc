// tpsim-plan: what to launch.
#include "launch/plan/plan_command.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"plan", add_plan_command}};

const Program kProgram{"tpsim-plan", kCommands};

}  // namespace tpsim::launch
