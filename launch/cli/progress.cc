#include "launch/cli/progress.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "launch/cli/terminal.h"

namespace tpsim::launch {

namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLogInterval{3};
constexpr int kBarWidth = 24;

}  // namespace

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
