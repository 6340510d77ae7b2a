// tpsim-serve: a live server whose batches are priced.
#include "launch/programs/program.h"
#include "launch/serve/serve_command.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"serve", add_serve_command}};

const Program kProgram{"tpsim-serve", kCommands};

}  // namespace tpsim::launch
