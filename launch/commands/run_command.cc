#include <filesystem>
#include <optional>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/commands/commands.h"
#include "launch/flags/server_args.h"
#include "launch/fleet/fleet_run.h"
#include "launch/simulation/simulate.h"
#include "launch/simulation/sweep.h"
#include "proto/base/error.h"

namespace tpsim::launch {

namespace {

// --checkpoint and --resume of the same file: the same command begins and goes on.
void begin_where_nothing_is(ServerArgs& args) {
  if (!args.resume.empty() && args.resume == args.checkpoint && !std::filesystem::exists(args.resume))
    args.resume.clear();
}

// What --attention-backends all comes to, in whichever settings the lists make; `args`, into which `flags`
// read, is left as the last of them.
AllBackends find_backends(FlagSet& flags, ServerArgs& args) {
  check_deployment_args(args);
  std::vector<ServerArgs> settings;
  for (const Setting& setting : expand_sweep(flags, args).settings) settings.push_back(setting.args);
  if (settings.empty()) settings.push_back(args);
  return all_backends(settings);
}

// run and compare differ in how backends are named and in how the result is shown.
void add(CLI::App& command, bool compare, rank::MpiSession& session, Action& action) {
  add_flag_command<ServerArgs>(
      command, action,
      [compare](FlagSet& flags, ServerArgs& args) { declare_server_flags(flags, args, compare); },
      [compare, &session](ServerArgs& args, FlagSet& flags) {
        args.given = flags.given();
        if (args.gpu_hour_costs.size() > 1)
          throw_user_error(
              "--gpu-hour-cost: takes one value here; several types of GPU have theirs in their hardware "
              "files, as \"gpu_hour_cost\"");
        if (!args.router.fleet.empty()) {
          if (!flags.lists().empty())
            throw_user_error("{}: a list beside --fleet; compare fleets, or settings of one deployment",
                             flags.lists().front().flag);
          return simulate_fleets(args, compare, session);
        }
        std::optional<AllBackends> all;
        if (args.all_attention_backends) {
          all = find_backends(flags, args);
          args.attention_backends = all->pairs;
        }
        const AllBackends* found = all ? &*all : nullptr;
        if (compare) {
          const Sweep sweep = expand_sweep(flags, args);
          if (!sweep.settings.empty()) return compare_sweep(args, sweep, found, session);
        }
        begin_where_nothing_is(args);
        check_server_args(args, compare);
        return simulate(args, compare, found, session);
      });
}

}  // namespace

void add_run_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add(command, /*compare=*/false, session, action);
}

void add_compare_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add(command, /*compare=*/true, session, action);
}

}  // namespace tpsim::launch
