// SGLang 0.5.6, which the others are told apart from: no rule is set. Its schedule was not compared with
// SGLang's own; that of 0.5.12 stands for it.
#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

SglangRelease v0_5_6() { return {.name = "0.5.6", .rules = {}}; }

}  // namespace tpsim::scheduler
