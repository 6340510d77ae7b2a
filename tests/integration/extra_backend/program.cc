// What `tpsim run | compare | backends` and `verify` are, in one program.
#include "launch/programs/program.h"

#include "launch/commands/commands.h"
#include "launch/numeric/numeric_commands.h"

namespace tpsim::launch {
namespace {

constexpr LinkedCommand kCommands[] = {{"run", add_run_command},
                                       {"compare", add_compare_command},
                                       {"verify", add_verify_command},
                                       {"backends", add_backends_command}};

}  // namespace

const Program kProgram{"tpsim_extra_backend", kCommands, &kNumericExecution};

}  // namespace tpsim::launch
