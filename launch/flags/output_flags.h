// Reports, traces of the run, its checkpoints and logs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct OutputArgs {
  std::string report_dir;
  std::uint64_t steps_every = 1;  // steps.csv holds every so many-th step; 0: there is none
  bool compress = false;          // CSV files
  std::string output_file;
  std::vector<double> gpu_hour_costs;  // empty: those of hardware files
  std::string log_level = "warning";
  bool quiet = false;
  bool no_progress = false;
  bool check_invariants = false;
  std::string record_batches;  // file; empty: none
  std::string trace_out;       // Perfetto trace; file; empty: none
  // The part of the run's clock that it holds, seconds.
  double trace_from = 0;
  double trace_until = std::numeric_limits<double>::infinity();
  std::string checkpoint;                  // file that receives the run's state; empty: none, or `resume`
  std::optional<double> checkpoint_every;  // seconds of the wall clock; default 60
  std::string resume;                      // file to go on from; empty: none

  const std::string& checkpoint_file() const { return resume.empty() ? checkpoint : resume; }
};

void declare_output(FlagSet& flags, OutputArgs& args);
// --log-level, --no-progress and, of a command that prints a table, --quiet.
void declare_logging(FlagSet& flags, OutputArgs& args, bool prints_table = true);
void declare_invariants(FlagSet& flags, OutputArgs& args);
// --trace-out and its window.
void declare_trace(FlagSet& flags, OutputArgs& args);
// `swept`: of one setting of a sweep.
void check_output(const OutputArgs& args, bool compare, bool swept);
void check_trace(const OutputArgs& args);
void check_checkpoints(const OutputArgs& args, bool compare, bool numeric);

}  // namespace tpsim::launch
