// The commands that answer from prices. Each declares the flags of `command`; when that was parsed, `action`
// becomes what carries it out and returns the exit status.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

struct AllBackends;
struct ServerArgs;
struct Sweep;

// `session`, `command` and `action` must outlive the action.
void add_run_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_compare_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_replay_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_backends_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_models_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_completion_command(CLI::App& command, rank::MpiSession& session, Action& action);

// `tpsim compare` with lists: the same workload under every setting of a sweep. Priced settings are shared
// out whole over the threads of all processes; computed ones, which take cores and are timed by the wall
// clock, over groups of processes, in each of which a process has a rank of the setting at best.
//
// Called in every process, with the same arguments; `args` holds what does not vary. Returns the exit status:
// kDone, or kStoppedEarly where a signal or a lost process ended it before its time (settings that were
// finished are reported). Throws UserError where no setting can be carried out. The report does not depend on
// the number of processes, nor on --jobs, but for the times of computed settings.
// `all`: what --attention-backends all came to; null where backends were named.
int compare_sweep(const ServerArgs& args, const Sweep& sweep, const AllBackends* all,
                  rank::MpiSession& session);

}  // namespace tpsim::launch
