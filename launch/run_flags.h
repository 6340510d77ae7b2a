// The flags of `tpsim run` or `tpsim compare` from a list of words instead of a command line: the same
// declarations, checks and sentences.
#pragma once

#include <string>
#include <vector>

#include "launch/server_args.h"

namespace tpsim::launch {

// Throws UserError.
ServerArgs read_run_flags(std::vector<std::string> words, bool compare = false);

}  // namespace tpsim::launch
