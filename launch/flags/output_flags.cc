#include "launch/flags/output_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <string_view>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// "all", "every:N" and "none" as OutputArgs::steps_every.
std::uint64_t parse_steps(std::string_view flag, const std::string& value) {
  constexpr std::string_view kEvery = "every:";
  if (value == "all") return 1;
  if (value == "none") return 0;
  if (!value.starts_with(kEvery)) throw_user_error("{} {}: must be all, every:N or none", flag, value);
  return parse_count(fmt::format("{} every:", flag), value.substr(kEvery.size()), 1, 1'000'000'000);
}

// "FROM:UNTIL", seconds; either may be left out.
void read_trace_window(std::string_view flag, const std::string& value, OutputArgs& args) {
  const std::size_t colon = value.find(':');
  if (colon == std::string::npos || value.size() == 1)
    throw_user_error("{} {}: must be FROM:UNTIL in seconds of the run's clock, for example 600:660", flag,
                     value);
  constexpr double kMost = 1e9;
  const std::string from = value.substr(0, colon), until = value.substr(colon + 1);
  if (!from.empty()) args.trace_from = parse_real(flag, from, 0, true, kMost, true);
  if (!until.empty()) args.trace_until = parse_real(flag, until, 0, false, kMost, true);
  if (args.trace_from >= args.trace_until)
    throw_user_error("{} {}: must end after it begins, for example 600:660", flag, value);
}

}  // namespace

void declare_output(FlagSet& flags, OutputArgs& args) {
  flags.group("Output");
  flags.add_value("--report-dir", "DIR", "receives report.json, requests.csv, steps.csv and report.html",
                  text(args.report_dir));
  flags.add_value("--steps", "WHICH", "steps that steps.csv holds: all, every:N or none (default all)",
                  [&args](std::string_view flag, const std::string& value) {
                    args.steps_every = parse_steps(flag, value);
                  });
  flags.add_switch("--compress", "writes requests.csv.gz and steps.csv.gz", args.compress);
  flags.add_value("--output-file", "FILE",
                  "appends a JSON line for each run, with the keys of SGLang's serving benchmark",
                  text(args.output_file));
  flags.add_value("--gpu-hour-cost", "COST",
                  "of one GPU for an hour, in any money: adds the cost of a million tokens and of a thousand "
                  "requests; of `tpsim plan` one for each of --hardware (2.5,3.8,6), whose types of GPU it "
                  "orders (default: \"gpu_hour_cost\" of the hardware file)",
                  [&args](std::string_view flag, const std::string& value) {
                    args.gpu_hour_costs.clear();
                    for (const std::string& one : split_list(value))
                      args.gpu_hour_costs.push_back(parse_real(flag, one, 0, false, 1e6, true));
                  });
  declare_logging(flags, args);
  declare_invariants(flags, args);
  flags.add_value("--record-batches", "FILE", "receives the stream of batches, for `tpsim replay`",
                  text(args.record_batches));
  declare_trace(flags, args);
  flags.add_value("--checkpoint", "FILE",
                  "receives the state of the run now and then, so that --resume goes on should the run be "
                  "killed; removed at the end of the run",
                  text(args.checkpoint));
  flags.add_value("--checkpoint-every", "SECONDS", "of the wall clock, between two states (default 60)",
                  real(args.checkpoint_every, 0, true, 1e6, true));
  flags.add_value("--resume", "FILE",
                  "goes on from this checkpoint of a run with the same flags, and keeps writing it; the "
                  "report is that of a run that was never interrupted, byte for byte (with --checkpoint of "
                  "the same FILE: begins where there is none)",
                  text(args.resume));
}

void declare_trace(FlagSet& flags, OutputArgs& args) {
  flags.add_value("--trace-out", "FILE",
                  "receives a trace of scheduler, ranks and requests that ui.perfetto.dev opens; compressed "
                  "where the name ends in .gz",
                  text(args.trace_out));
  flags.add_value(
      "--trace-window", "FROM:UNTIL", "seconds of the run's clock that the trace is of (default all)",
      [&args](std::string_view flag, const std::string& value) { read_trace_window(flag, value, args); });
}

void check_trace(const OutputArgs& args) {
  if (args.trace_out.empty() && (args.trace_from > 0 || std::isfinite(args.trace_until)))
    throw_user_error("--trace-window: is the part of the run that --trace-out receives; give both");
}

void declare_logging(FlagSet& flags, OutputArgs& args, bool prints_table) {
  flags.add_value("--log-level", "LEVEL", "debug, info, warning or error (default warning)",
                  word({"debug", "info", "warning", "error"}, args.log_level));
  if (prints_table) flags.add_switch("--quiet", "no progress bar and no table", args.quiet);
  flags.add_switch("--no-progress", "no progress bar", args.no_progress);
}

void declare_invariants(FlagSet& flags, OutputArgs& args) {
  flags.add_switch("--check-invariants", "checks the accounts of the KV pool after every step",
                   args.check_invariants);
}

void check_output(const OutputArgs& args, bool compare, bool swept) {
  if (args.report_dir.empty() && args.steps_every != 1)
    throw_user_error("--steps: chooses rows of steps.csv, which --report-dir receives; give both");
  if (args.report_dir.empty() && args.compress)
    throw_user_error("--compress: is for the CSV files of --report-dir; give both");
  if (swept && (args.steps_every != 1 || args.compress))
    throw_user_error(
        "--{}: is for requests.csv and steps.csv, a sweep writes one row for each setting to sweep.csv; "
        "leave it out",
        args.compress ? "compress" : "steps");
  if (compare && !args.record_batches.empty())
    throw_user_error("--record-batches {}: takes the batches of one run, use `tpsim run`",
                     args.record_batches);
  if (compare && !args.trace_out.empty())
    throw_user_error("--trace-out {}: is a trace of one run, use `tpsim run`", args.trace_out);
  check_trace(args);
}

void check_checkpoints(const OutputArgs& args, bool compare, bool numeric) {
  const std::string& file = args.checkpoint_file();
  if (file.empty()) {
    if (args.checkpoint_every)
      throw_user_error("--checkpoint-every {}: needs --checkpoint, the file to write",
                       format_real(*args.checkpoint_every));
    return;
  }
  const char* const flag = args.resume.empty() ? "--checkpoint" : "--resume";
  if (compare) throw_user_error("{} {}: is of one run, use `tpsim run`", flag, file);
  if (!args.resume.empty() && !args.checkpoint.empty() && args.checkpoint != args.resume)
    throw_user_error("--checkpoint {}: --resume {} goes on in its own file; name the same one, or one alone",
                     args.checkpoint, args.resume);
  if (numeric)
    throw_user_error(
        "{} {}: keeps priced runs, numeric execution is on the wall clock; use --executor modeled", flag,
        file);
  if (!args.trace_out.empty())
    throw_user_error("{} {}: excludes --trace-out, which begins with the run; leave one out", flag, file);
  if (!args.record_batches.empty())
    throw_user_error(
        "{} {}: excludes --record-batches, whose stream would begin in the middle; leave one out", flag,
        file);
}

}  // namespace tpsim::launch
