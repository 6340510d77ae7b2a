// Runs the flags of `tpsim run` or `tpsim compare` through the parser, as main() does.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "launch/flag_set.h"
#include "launch/repeated_flags.h"
#include "launch/server_args.h"
#include "proto/base/error.h"

namespace tpsim::launch {

inline ServerArgs parse(std::vector<std::string> words, bool compare = false) {
  CLI::App app("test", compare ? "compare" : "run");
  FlagSet flags(app);
  ServerArgs args;
  declare_server_flags(flags, args, compare);
  refuse_repeated_flags(app, words);
  std::reverse(words.begin(), words.end());  // CLI11 takes a stack
  app.parse(words);
  flags.read();
  check_server_args(args, compare);
  return args;
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
