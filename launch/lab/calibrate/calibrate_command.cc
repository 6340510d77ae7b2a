#include "launch/lab/calibrate/calibrate_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/flags/server_args.h"
#include "launch/lab/calibrate/fit_report.h"
#include "launch/lab/calibrate/kernel_fits.h"
#include "launch/lab/calibrate/serving_fit.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/served/measurement_flags.h"
#include "proto/base/error.h"
#include "proto/base/output_file.h"
#include "proto/base/stop_flag.h"
#include "rank/cost/hardware.h"
#include "rank/parallel/farm.h"

namespace tpsim::launch {
namespace {

struct CalibrateArgs {
  std::vector<std::string> from;
  std::string hardware, output;
  MeasurementOptions options;
  std::optional<std::uint32_t> jobs;
  ServerArgs logging;  // what --log-level and the like mean
};

void declare(FlagSet& flags, CalibrateArgs& args) {
  flags.group("Measurements");
  flags.add_list(
      "--from", "FILE",
      "one or more files of measured loads as `tpsim validate --measurements` takes them; steps are fitted "
      "where the server's log is there, of a server started with --decode-log-interval 1 (required)",
      [&args](std::string_view, const std::vector<std::string>& values) { args.from = values; });
  flags.add_value("--hardware", "GPU",
                  "what is calibrated: a GPU of the catalogue, or a profile's file (required)",
                  [&args](std::string_view flag, const std::string& value) {
                    text(args.hardware)(flag, value);
                    rank::load_hardware(value);
                  });
  declare_traces(flags, args.options);
  flags.add_value("--jobs", "N", "loads served at once (default: the cores of this process)",
                  count(args.jobs, 1, 1024));
  flags.group("Output");
  flags.add_value("--output", "FILE", "receives the profile, which --hardware takes (required)",
                  text(args.output));
  declare_logging(flags, args.logging);
}

std::string names_of(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const std::string& file : files) names.push_back(std::filesystem::path(file).filename().string());
  return fmt::format("{}", fmt::join(names, ", "));
}

struct Measurements {
  std::vector<MeasuredLoad> loads;
  std::vector<std::string> files;  // of the loads
  std::vector<calibrate::KernelTableFile> tables;
};

Measurements read_all(const CalibrateArgs& args) {
  Measurements out;
  MeasurementOptions options = args.options;
  options.hardware = args.hardware;
  for (const std::string& file : args.from) {
    std::error_code error;
    if (!std::filesystem::exists(file, error)) throw_user_error("--from {}: no such file", file);
    std::vector<calibrate::KernelTableFile> tables = calibrate::kernel_tables(file);
    if (tables.empty()) {
      std::vector<MeasuredLoad> more = read_measurements(file, options);
      std::move(more.begin(), more.end(), std::back_inserter(out.loads));
      out.files.push_back(file);
    }
    std::move(tables.begin(), tables.end(), std::back_inserter(out.tables));
  }
  return out;
}

int calibrate(const CalibrateArgs& args, const rank::MpiSession& session) {
  const bool first = session.process() == 0;
  set_up_logging(args.logging, first);
  if (!first) return kDone;  // one process has the work of all
  for (const auto& [flag, given] :
       {std::pair("--from", !args.from.empty()), std::pair("--hardware", !args.hardware.empty()),
        std::pair("--output", !args.output.empty())})
    if (!given) throw_user_error("{}: is required, see `tpsim calibrate --help`", flag);
  proto::HardwareProfile profile = rank::load_hardware(args.hardware);
  OutputFile output(args.output, "--output " + args.output);
  const Measurements measured = read_all(args);
  const bool colour = shows_colours(STDOUT_FILENO);
  std::string report;
  {
    ProgressBar progress(ProgressBar::mode_for_stderr(!args.logging.quiet && !args.logging.no_progress),
                         "calibrate", "steps");
    std::uint64_t calls = 0;
    const auto on_step = [&] {
      StopFlag::throw_if_requested();
      progress.update({.finished = ++calls, .total = calls + 1});
    };
    if (!measured.tables.empty())
      report += calibrate::kernel_report(calibrate::fit_kernels(measured.tables, on_step, profile), colour);
    if (!measured.loads.empty()) {
      // Loads last: what kernels alone do not tell is fitted around what they do.
      const bool changed = !measured.tables.empty();
      calibrate::ServingRows rows(measured.loads, args.hardware);
      calibrate::ServingFit fit =
          calibrate::fit_serving(rows, profile, "tpsim calibrate from " + names_of(measured.files),
                                 args.jobs.value_or(rank::cores_of_process({})), on_step);
      report += (changed ? "\n" : "") + calibrate::fit_report(rows, fit, colour);
      profile = std::move(fit.profile);
    }
  }
  {
    const StopFlag::Writing writing;
    output.write(calibrate::profile_text(profile));
    output.commit();
  }
  if (args.logging.quiet || output.is_standard_output()) return kDone;
  print(report);
  print(fmt::format("\nProfile: {}\n", args.output));
  flush_output();
  return kDone;
}

}  // namespace

void add_calibrate_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<CalibrateArgs>(
      command, action, [](FlagSet& flags, CalibrateArgs& args) { declare(flags, args); },
      [&session](CalibrateArgs& args, FlagSet&) { return calibrate(args, session); });
}

}  // namespace tpsim::launch
