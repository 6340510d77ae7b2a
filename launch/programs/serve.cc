// tpsim-serve: a live server whose batches are priced, or whose images and videos are.
#include "launch/programs/program.h"
#include "launch/serve/pipelines/serve_pipeline.h"
#include "launch/serve/serve_args.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"serve", add_serve_command, add_pipeline_serve}};

const Program kProgram{"tpsim-serve", kCommands};

}  // namespace tpsim::launch
