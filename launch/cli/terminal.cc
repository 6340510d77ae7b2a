#include "launch/cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

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

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLogInterval{3};
constexpr int kBarWidth = 24;

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

std::string progress_line(const std::string& label, const scheduler::Progress& progress, double wall_seconds,
                          int width, const std::string& unit) {
  const double share = progress.total == 0
                           ? 1.0
                           : static_cast<double>(progress.finished) / static_cast<double>(progress.total);
  const int filled = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
  const std::string parts[] = {
      label,
      fmt::format("  [{}{}]", std::string(filled, '#'), std::string(kBarWidth - filled, '-')),
      fmt::format(" {:3.0f}%", share * 100),
      fmt::format("  {}/{} {}", progress.finished, progress.total, unit),
      progress.time > 0 ? fmt::format("  {:.1f} s simulated", progress.time) : std::string(),
      progress.time > 0 && wall_seconds > 0 ? fmt::format("  {:.0f} s/s", progress.time / wall_seconds)
                                            : std::string(),
  };
  std::string line;
  for (const std::string& part : parts) {
    if (static_cast<int>(line.size() + part.size()) > width) break;
    line += part;
  }
  return line;
}

ProgressBar::Mode ProgressBar::mode_for_stderr(bool enabled) {
  if (!enabled) return Mode::kOff;
  return terminal_columns(STDERR_FILENO) > 0 ? Mode::kTerminal : Mode::kLog;
}

ProgressBar::ProgressBar(Mode mode, std::string label, std::string unit)
    : mode_(mode), label_(std::move(label)), unit_(std::move(unit)), start_(Clock::now()), next_(start_) {
  if (mode_ == Mode::kLog) next_ += kLogInterval;
}

ProgressBar::~ProgressBar() { erase(); }

void ProgressBar::erase() {
  if (drawn_) draw("");
  drawn_ = false;
}

void ProgressBar::draw(const std::string& line) {
  // Carriage return, text, erase to the end of the line.
  const std::string out = "\r" + line + "\x1b[K";
  std::fwrite(out.data(), 1, out.size(), stderr);
  std::fflush(stderr);
}

void ProgressBar::update(const scheduler::Progress& progress) {
  if (mode_ == Mode::kOff) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  const double wall = std::chrono::duration<double>(now - start_).count();
  if (mode_ == Mode::kTerminal) {
    next_ = now + kRedraw;
    // One column less than the terminal has: a full line would wrap on some.
    draw(progress_line(label_, progress, wall, terminal_columns(STDERR_FILENO) - 1, unit_));
    drawn_ = true;
  } else {
    next_ = now + kLogInterval;
    spdlog::info("{}", progress_line(label_, progress, wall, 200, unit_));
  }
}

}  // namespace tpsim::launch
