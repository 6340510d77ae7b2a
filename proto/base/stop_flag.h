// SIGINT, SIGTERM and SIGHUP ask the program to stop: whatever takes long looks here now and then and ends,
// what was finished is written, and the exit status is 3. A process that has not ended 1.6 s after the signal
// is ended, without temporary files left behind; where results are being written, after 10 s. A second signal
// ends it at once.
//
// Of several processes, process 0 notices signals and the others ignore them until it tells them to stop, so
// that what was finished is complete. Under mpirun, Ctrl-C (or SIGTERM or SIGHUP to mpirun) reaches the
// processes as SIGTERM 1 s later, followed by SIGKILL after another (--mca odls_base_sigkill_timeout); mpirun
// itself then exits with 1, whatever tpsim says. `kill -USR1 <mpirun>` is forwarded at once and without a
// deadline, and mpirun exits with tpsim's 3: SIGUSR1 is therefore heeded, too, and launch/run sends it.
#pragma once

#include <exception>

namespace tpsim {

// Work was given up because of a signal.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

class StopFlag {
 public:
  // Takes the signals of this process from here on. SIGHUP stays ignored where the parent ignores it (nohup).
  static void install();
  // For all processes but process 0: signals mean nothing to this one, those that came before included.
  static void leave_to_process_0();

  // Whether a signal asked this process to stop.
  static bool requested() noexcept;
  // Throws Stopped if requested().
  static void throw_if_requested() {
    if (requested()) throw Stopped();
  }

  // While one of these lives, finished results are being written.
  class Writing {
   public:
    Writing() noexcept;
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
    ~Writing();
  };

  // While one of these lives, the first signal is its owner's alone, who ends when what has begun is done, as
  // a server that answers its clients: requested() stays false, and there is no deadline. A second signal
  // ends the process at once all the same.
  class Unhurried {
   public:
    Unhurried() noexcept;
    Unhurried(const Unhurried&) = delete;
    Unhurried& operator=(const Unhurried&) = delete;
    // After a signal, what is left to do has the time that it always has.
    ~Unhurried();
    // Whether a signal came since.
    bool asked() const noexcept;
  };
};

}  // namespace tpsim
