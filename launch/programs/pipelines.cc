// tpsim-pipelines: images and videos of diffusion pipelines, priced.
#include "launch/diffusion/diffusion_commands.h"
#include "launch/programs/program.h"

namespace tpsim::launch {

constexpr LinkedCommand kCommands[] = {{"run", nullptr, add_pipeline_run},
                                       {"compare", nullptr, add_pipeline_compare},
                                       {"generate", nullptr, add_pipeline_generate},
                                       {"backends", nullptr, add_pipeline_backends}};

const Program kProgram{"tpsim-pipelines", kCommands};

}  // namespace tpsim::launch
