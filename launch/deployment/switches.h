// What several subjects of a deployment may turn off. Each takes what is left on by the subjects before it
// and hands on what it leaves on.
#pragma once

#include "launch/flags/batch_flags.h"

namespace tpsim::launch {

struct Switches {
  bool mixed_chunk = false;
  bool overlap = true;
  bool radix_cache = true;
};

inline Switches asked_switches(const BatchArgs& args) {
  return {args.enable_mixed_chunk, !args.disable_overlap_schedule, !args.disable_radix_cache};
}

}  // namespace tpsim::launch
