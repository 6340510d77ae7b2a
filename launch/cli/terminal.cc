#include "launch/cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "proto/base/error.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {
namespace {

int columns_of(int descriptor) {
  constexpr int kUsual = 80;
  winsize size{};
  if (isatty(descriptor) == 0) return 0;
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

// Where the launcher is on this host, it is the parent. On another one its daemon is, which has no terminal.
int columns_of_launcher(int descriptor) {
  const std::string path = fmt::format("/proc/{}/fd/{}", getppid(), descriptor);
  struct stat status = {};
  // Only a device may be opened to look: a FIFO would wait, and count this process among its ends.
  if (stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return 0;
  const int shown = open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (shown < 0) return 0;
  const int columns = columns_of(shown);
  close(shown);
  return columns;
}

void check(bool good) {
  if (good) return;
  if (errno == EPIPE) throw OutputClosed();
  throw_user_error("standard output cannot be written: {}", std::strerror(errno));
}

}  // namespace

int terminal_columns(int descriptor) {
  const char* const term = std::getenv("TERM");
  if (term == nullptr || *term == '\0' || std::string_view(term) == "dumb") return 0;
  return rank::started_by_launcher() ? columns_of_launcher(descriptor) : columns_of(descriptor);
}

bool shows_colours(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && terminal_columns(descriptor) > 0;
}

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
