// SIGINT and SIGTERM in mid-run: the schedule stops at the next look, what was finished is reported, exit 3.
//
// Process 0 notices signals and the others ignore them until process 0 tells them to stop, so that the
// report is complete. Under mpirun, Ctrl-C (or SIGTERM to mpirun) reaches the processes as SIGTERM, followed
// by SIGKILL after 1 s (--mca odls_base_sigkill_timeout); mpirun itself then exits with 1, whatever tpsim
// says. `kill -USR1 <mpirun>` is forwarded without a deadline, and mpirun exits with tpsim's 3.
#pragma once

namespace tpsim::rank {

class StopFlag {
 public:
  // Installs the handlers of this process for SIGINT, SIGTERM and SIGUSR1. A second SIGINT ends the process
  // that schedules at once.
  static void install(bool schedules);
  // Whether a signal asked this process to stop.
  static bool requested();
};

}  // namespace tpsim::rank
