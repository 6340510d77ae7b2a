#include "launch/cli/standard_output.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

void check(bool good) {
  if (good) return;
  if (errno == EPIPE) throw OutputClosed();
  throw_user_error("standard output cannot be written: {}", std::strerror(errno));
}

}  // namespace

void guard_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Opened for the other direction: using it stays an error.
    if (open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void print(std::string_view text) { check(std::fwrite(text.data(), 1, text.size(), stdout) == text.size()); }

void flush_output() { check(std::fflush(stdout) == 0); }

}  // namespace tpsim::launch
