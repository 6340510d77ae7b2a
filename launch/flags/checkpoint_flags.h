// --checkpoint and --resume.
#pragma once

#include <optional>
#include <string>

#include "launch/cli/flag_set.h"
#include "launch/flags/output_flags.h"

namespace tpsim::launch {

struct CheckpointArgs {
  std::string checkpoint;                  // file that receives the run's state; empty: none, or `resume`
  std::optional<double> checkpoint_every;  // seconds of the wall clock; default 60
  std::string resume;                      // file to go on from; empty: none

  const std::string& checkpoint_file() const { return resume.empty() ? checkpoint : resume; }
};

void declare_checkpoints(FlagSet& flags, CheckpointArgs& args);
void check_checkpoints(const CheckpointArgs& args, const OutputArgs& output, bool compare, bool numeric);

}  // namespace tpsim::launch
