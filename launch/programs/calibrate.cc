// tpsim-calibrate: fits to measurements.
#include "launch/lab/calibrate/calibrate_command.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"calibrate", add_calibrate_command}};

const Program kProgram{"tpsim-calibrate", kCommands};

}  // namespace tpsim::launch
