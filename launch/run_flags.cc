#include "launch/run_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "launch/flag_set.h"
#include "launch/repeated_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {

ServerArgs read_run_flags(std::vector<std::string> words, bool compare) {
  CLI::App app("", compare ? "compare" : "run");
  FlagSet flags(app);
  ServerArgs args;
  declare_server_flags(flags, args, compare);
  refuse_repeated_flags(app, words);
  std::reverse(words.begin(), words.end());  // CLI11 takes a stack
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw_user_error("{}", error.what());
  }
  flags.read();
  check_server_args(args, compare);
  return args;
}

}  // namespace tpsim::launch
