#include "proto/base/stop_flag.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "proto/base/output_file.h"

namespace tpsim {
namespace {

constexpr std::int64_t kGrace = 1600;  // milliseconds
constexpr std::int64_t kGraceOfResults = 10000;
// One Ctrl-C may arrive twice: from the terminal and from a launcher.
constexpr std::int64_t kSameSignal = 500;
constexpr int kStoppedEarly = 3;

// Signal handlers read and write these.
std::atomic<bool> stop_requested = false;
std::atomic<bool> left_to_others = false;
std::atomic<int> writing = 0;
std::atomic<bool> unhurried = false;
std::atomic<bool> unhurried_asked = false;
std::atomic<std::int64_t> first_signal = 0;  // milliseconds of the monotonic clock; 0: none yet
// mpirun where launch/run has told it not to end the others when one process does; 0 elsewhere.
std::atomic<pid_t> patient_parent = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1000} + time.tv_nsec / 1'000'000;
}

// 0: never.
void wake_after(std::int64_t milliseconds) {
  itimerval timer{};
  timer.it_value.tv_sec = milliseconds / 1000;
  timer.it_value.tv_usec = milliseconds % 1000 * 1000;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

[[noreturn]] void end_now() {
  OutputFile::remove_temporaries();
  constexpr char kSentence[] = "tpsim: ended by a signal before all was written\n";
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, kSentence, sizeof kSentence - 1);
  // The others wait for this process and would for ever.
  if (patient_parent > 0 && patient_parent == getppid()) kill(patient_parent, SIGTERM);
  _exit(kStoppedEarly);
}

void on_stop(int) {
  if (left_to_others) return;
  std::int64_t before = 0;
  if (first_signal.compare_exchange_strong(before, now())) {
    if (unhurried) {
      unhurried_asked = true;
      return;
    }
    stop_requested = true;
    wake_after(kGrace);
  } else if (now() - before > kSameSignal) {
    end_now();
  }
}

void on_deadline(int) {
  if (left_to_others) return;
  const std::int64_t left = first_signal + kGraceOfResults - now();
  if (writing == 0 || left <= 0) end_now();
  wake_after(left);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

void StopFlag::install() {
  if (std::getenv("TPSIM_STATUS_FILE") != nullptr && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr)
    patient_parent = getppid();
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) handle(number, on_stop);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) handle(SIGHUP, on_stop);
  handle(SIGALRM, on_deadline);
}

void StopFlag::leave_to_process_0() {
  left_to_others = true;
  stop_requested = false;
  wake_after(0);
}

bool StopFlag::requested() noexcept { return stop_requested.load(std::memory_order_relaxed); }

StopFlag::Writing::Writing() noexcept { ++writing; }
StopFlag::Writing::~Writing() { --writing; }

// A signal that came before stays what it was: a request to stop.
StopFlag::Unhurried::Unhurried() noexcept {
  unhurried_asked = false;
  unhurried = true;
}

StopFlag::Unhurried::~Unhurried() {
  unhurried = false;
  if (!unhurried_asked) return;
  first_signal = now();
  wake_after(kGrace);
}

bool StopFlag::Unhurried::asked() const noexcept { return unhurried_asked || requested(); }

}  // namespace tpsim
