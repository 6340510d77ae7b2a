#include "rank/parallel/stop_flag.h"

#include <signal.h>

#include <initializer_list>

namespace tpsim::rank {

namespace {

volatile sig_atomic_t stop_requested = 0;

void on_signal(int number) {
  if (stop_requested != 0 && number == SIGINT) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  stop_requested = 1;
}

}  // namespace

void StopFlag::install(bool schedules) {
  struct sigaction action = {};
  action.sa_handler = schedules ? on_signal : SIG_IGN;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(number, &action, nullptr);
}

bool StopFlag::requested() { return stop_requested != 0; }

}  // namespace tpsim::rank
