// SGLang's arithmetic of who shares the GPUs (ServerArgs._adjust_parallelism, _validate_parallelism and
// _validate_cfg_parallel of sglang.multimodal_gen 0.5.23).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/diffusion/deployment_rule.h"
#include "launch/diffusion/pipeline_args.h"

namespace tpsim::launch {

struct Parallelism {
  std::uint32_t num_gpus = 1, tp = 1, dp = 1, cfg = 1;
  std::uint32_t sp = 1, ulysses = 1, ring = 1, kv_gather = 1;  // sp: the product of the others
  std::vector<std::string> notes;                              // what was chosen unasked, a sentence each
};

// `guided`: the pipeline's requests are guided by default; `manual`: --performance-mode manual. Throws
// UserError naming the flag where SGLang refuses.
Parallelism resolve_parallelism(const ParallelAsked& asked, const DeploymentRule& rule, bool guided,
                                bool manual);

}  // namespace tpsim::launch
