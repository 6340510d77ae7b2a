// The commands of the tpsim program. Each declares its flags in a subcommand of `root`; when that subcommand
// was parsed, `action` becomes what carries it out and returns the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

using Action = std::function<int()>;

// What the contract of the command line promises.
inline constexpr int kDone = 0;
inline constexpr int kDisagreement = 1;  // verify: something differs from the reference
inline constexpr int kInternalError = 1;
inline constexpr int kRefused = 2;
inline constexpr int kStoppedEarly = 3;

// `session`, `root` and `action` must outlive the action.
void add_run_command(CLI::App& root, rank::MpiSession& session, Action& action);
void add_compare_command(CLI::App& root, rank::MpiSession& session, Action& action);
void add_generate_command(CLI::App& root, rank::MpiSession& session, Action& action);
void add_verify_command(CLI::App& root, rank::MpiSession& session, Action& action);
void add_replay_command(CLI::App& root, rank::MpiSession& session, Action& action);
void add_backends_command(CLI::App& root, Action& action);

}  // namespace tpsim::launch
