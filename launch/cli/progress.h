// How far a run is, on standard error: a bar on a terminal, a log line now and then elsewhere.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "scheduler/records.h"

namespace tpsim::launch {

// "fa3  [#####-----]  52%  6253/12031 requests  1830.2 s simulated  412 s/s". Exactly `width` columns or
// fewer; parts are dropped from the right where it is narrow. `wall_seconds` is the time since the start.
// `unit`: what is counted.
std::string progress_line(const std::string& label, const scheduler::Progress& progress, double wall_seconds,
                          int width, const std::string& unit = "requests");

class ProgressBar {
 public:
  enum class Mode { kOff, kTerminal, kLog };

  // The mode for this process: the bar where `enabled` and standard error is a terminal, else log lines
  // (which appear at --log-level info and below).
  static Mode mode_for_stderr(bool enabled);

  ProgressBar(Mode mode, std::string label, std::string unit = "requests");
  // Erases the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Cheap: draws at most ten times a second (terminal) or once in three seconds (log).
  void update(const scheduler::Progress& progress);
  // Makes way for other output; the next update draws again.
  void erase();
  void set_label(std::string label) { label_ = std::move(label); }

 private:
  using Clock = std::chrono::steady_clock;

  void draw(const std::string& line);

  Mode mode_;
  std::string label_;
  std::string unit_;
  Clock::time_point start_;
  Clock::time_point next_;
  bool drawn_ = false;
};

}  // namespace tpsim::launch
