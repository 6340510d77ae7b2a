// tpsim-numeric: what computes batches, or may.
#include "launch/commands/commands.h"
#include "launch/numeric/numeric_commands.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"run", add_run_command},
                                       {"compare", add_compare_command},
                                       {"generate", add_generate_command},
                                       {"verify", add_verify_command, add_verify_pipeline},
                                       {"replay", add_replay_command}};

const Program kProgram{"tpsim-numeric", kCommands, &kNumericExecution};

}  // namespace tpsim::launch
