// What a person at a terminal sees, and a reader of a pipe: what is shown depends on whether somebody looks
// at it, and every command makes sure that standard output took what was printed.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "scheduler/records.h"

namespace tpsim::launch {

// Columns of the terminal that shows `descriptor` (STDOUT_FILENO or STDERR_FILENO); 0 where it goes to a
// file, a pipe, or a terminal that cannot move its cursor (TERM=dumb or none). mpirun gives its processes a
// pseudo-terminal for their output wherever that goes in the end: there, the descriptor of mpirun counts.
int terminal_columns(int descriptor);

// Whether ANSI colours are wanted on `descriptor`: on a terminal, unless NO_COLOR (https://no-color.org) is
// set to something.
bool shows_colours(int descriptor);

// The reader of standard output has gone (`tpsim ... | head`): nobody is left to tell.
class OutputClosed : public std::exception {};

// Before anything else: a standard descriptor that the parent closed must not become some file that is opened
// later, and writing after a pipe's end or a file size limit is an error instead of the end of the process.
void guard_standard_descriptors();

// Prints `text`; it may stay buffered until flush_output(). Throws as flush_output().
void print(std::string_view text);

// Hands on what was printed. Throws OutputClosed, or UserError where it cannot be written (a full disk, a
// closed descriptor).
void flush_output();

// How far a run is, on standard error: a bar on a terminal, a log line now and then elsewhere.

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
