// tpsim-validate: predicted against measured.
#include "launch/lab/validation/validate_command.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"validate", add_validate_command}};

const Program kProgram{"tpsim-validate", kCommands};

}  // namespace tpsim::launch
