// tpsim-serve-numeric: a live server whose batches are computed.
#include "launch/numeric/numeric_commands.h"
#include "launch/programs/program.h"
#include "launch/serve/serve_command.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"serve", add_serve_command}};

const Program kProgram{"tpsim-serve-numeric", kCommands, &kNumericExecution};

}  // namespace tpsim::launch
