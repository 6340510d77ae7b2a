#include <memory>

#include "launch/commands.h"
#include "launch/compare_sweep.h"
#include "launch/flag_set.h"
#include "launch/server_args.h"
#include "launch/simulate.h"
#include "launch/sweep.h"

namespace tpsim::launch {

namespace {

// run and compare differ in how backends are named and in how the result is shown.
void add(CLI::App& root, const char* name, const char* description, bool compare, rank::MpiSession& session,
         Action& action) {
  CLI::App* command = root.add_subcommand(name, description);
  const auto args = std::make_shared<ServerArgs>();
  const auto flags = std::make_shared<FlagSet>(*command);
  declare_server_flags(*flags, *args, compare);
  command->callback([&session, &action, args, flags, compare] {
    action = [&session, args, flags, compare] {
      flags->read();
      if (compare) {
        const Sweep sweep = expand_sweep(*flags, *args);
        if (!sweep.settings.empty()) return compare_sweep(*args, sweep, session);
      }
      check_server_args(*args, compare);
      return simulate(*args, compare, session);
    };
  });
}

}  // namespace

void add_run_command(CLI::App& root, rank::MpiSession& session, Action& action) {
  add(root, "run", "Serve a workload on one deployment", false, session, action);
}

void add_compare_command(CLI::App& root, rank::MpiSession& session, Action& action) {
  add(root, "compare",
      "Serve the same workload once per attention backend or pair, and once for each value of the "
      "lists that flags marked [list] are given, such as --tp 4,8 --page-size 1,64: the best setting, the "
      "Pareto front and a row for each (--report-dir then receives sweep.csv instead of requests.csv and "
      "steps.csv)",
      true, session, action);
}

}  // namespace tpsim::launch
