#include "launch/interrupt.h"

#include <atomic>
#include <csignal>

namespace tpsim::launch {

namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the flag is set by a signal handler");

void on_signal(int number) {
  flag.store(true);
  // SIGTERM is what mpirun makes of a Ctrl-C; however many come, the report is written.
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return flag.load(std::memory_order_relaxed); }

}  // namespace tpsim::launch
