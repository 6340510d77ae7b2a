// tpsim-calibrate: fits to measurements.
#include "launch/lab/calibrate/calibrate_command.h"
#include "launch/programs/program.h"

namespace tpsim::launch {
namespace {

constexpr LinkedCommand kCommands[] = {{"calibrate", add_calibrate_command}};

}  // namespace

const Program kProgram{"tpsim-calibrate", kCommands};

}  // namespace tpsim::launch
