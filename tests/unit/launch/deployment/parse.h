// Runs the flags of `tpsim run` or `tpsim compare` through the parser, as main() does.
#pragma once

#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "proto/base/error.h"

namespace tpsim::launch {

inline ServerArgs parse(const std::vector<std::string>& words, bool compare = false) {
  return read_run_flags(words, compare);
}

// The sentence of the refusal, or "accepted".
inline std::string refusal(const std::vector<std::string>& words, bool compare = false) {
  try {
    parse(words, compare);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace tpsim::launch
