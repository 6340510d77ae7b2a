// SGLang 0.5.12, which the others are told apart from: no rule is set.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_12() { return {.name = "0.5.12", .rules = {}}; }

}  // namespace tpsim::scheduler
