#include "launch/lab/validation/validate_command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/error_bands/residuals.h"
#include "launch/flags/server_args.h"
#include "launch/lab/generations/published_figures.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/published_generations.h"
#include "launch/lab/passes/diffusion_passes.h"
#include "launch/lab/served/measurement_flags.h"
#include "launch/lab/validation/leave_one_out.h"
#include "launch/lab/validation/predict_load.h"
#include "launch/lab/validation/validation_report.h"
#include "launch/report/report_dir.h"
#include "proto/base/error.h"
#include "proto/base/output_file.h"
#include "proto/base/stop_flag.h"
#include "rank/cost/hardware.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/farm.h"

namespace tpsim::launch {
namespace {

struct ValidateArgs {
  std::vector<std::string> measurements;
  std::string kernels;
  MeasurementOptions options;
  std::string leave_one_out;  // what each fit leaves out; empty: no such fits
  std::string report_dir;
  std::string residuals;
  std::optional<std::uint32_t> jobs;
  ServerArgs logging;  // what --log-level and the like mean
};

void declare(FlagSet& flags, ValidateArgs& args) {
  flags.group("Measurements");
  flags.add_list(
      "--measurements", "FILE",
      "measured loads, one or more files: requests.csv of a measured server (servers.jsonl, batches.csv and "
      "models/ beside it), a client's JSON lines (NAME.info.json and NAME.log beside them), CSV with a "
      "row a load, a benchmark or a published figure of a diffusion pipeline, or NAME.json with a list of "
      "passes of diffusion pipelines; gzip is accepted (default: all servers of tests/calibration/measured)",
      [&args](std::string_view, const std::vector<std::string>& values) { args.measurements = values; });
  flags.add_value(
      "--kernels", "DIR",
      "tables of measured kernels, DIR/SYSTEM/TABLE_perf.csv.gz, of which each row is priced alone",
      text(args.kernels));
  declare_traces(flags, args.options);
  flags.add_value("--hardware", "GPU", "of measurements that do not name theirs (default h200-sxm)",
                  [&args](std::string_view flag, const std::string& value) {
                    text(args.options.hardware)(flag, value);
                    rank::load_hardware(value);
                  });
  flags.add_value("--leave-one-out", "GROUP",
                  "fits the host's constants to the loads without each server (or model, backend, hardware, "
                  "tp, load_kind, settings) and serves that one's loads by what the others say",
                  word(leave_one_out_groups(), args.leave_one_out));
  flags.add_value("--jobs", "N", "loads served at once by each process (default: its share of the cores)",
                  count(args.jobs, 1, 1024));
  flags.group("Output");
  flags.add_value("--report-dir", "DIR", "receives validation.json and validation.html",
                  text(args.report_dir));
  flags.add_value("--write-residuals", "FILE",
                  "receives what error bands rest on, a row for each load (the catalogue's: "
                  "rank/catalogue/residuals/serving.json)",
                  text(args.residuals));
  declare_logging(flags, args.logging);
}

// Our own servers, measured for this repository; none where the program was moved away from it.
std::vector<std::string> own_measurements() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TPSIM_MEASURED, error))
    if (entry.path().filename() == "requests.csv.gz") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// What there is to do, the same in every process: loads, then tables of kernels.
struct Tasks {
  std::vector<MeasuredLoad> loads;
  std::vector<KernelTask> kernels;
  std::vector<std::string> passes, generations;  // files, which take no time

  std::uint32_t size() const { return static_cast<std::uint32_t>(loads.size() + kernels.size()); }
};

Tasks read_all(const ValidateArgs& args) {
  std::vector<std::string> files = args.measurements;
  if (files.empty() && (args.kernels.empty() || !args.leave_one_out.empty())) files = own_measurements();
  if (files.empty() && args.kernels.empty())
    throw_user_error(
        "--measurements: is required where {} is not, a file of measured loads such as requests.csv, or "
        "--kernels, a folder of tables",
        TPSIM_MEASURED);
  Tasks tasks;
  if (!args.kernels.empty()) tasks.kernels = kernel_tasks(args.kernels);
  std::vector<MeasuredLoad>& loads = tasks.loads;
  for (const std::string& file : files) {
    if (holds_diffusion_passes(file)) {
      tasks.passes.push_back(file);
      continue;
    }
    if (holds_published_generations(file)) {
      tasks.generations.push_back(file);
      continue;
    }
    std::vector<MeasuredLoad> more = read_measurements(file, args.options);
    std::move(more.begin(), more.end(), std::back_inserter(loads));
  }
  return tasks;
}

// A load's result is a ValidatedRow, that of a table a Validation with its kernels.
rank::TaskFarm::Task task_of(const Tasks& tasks) {
  return [&tasks](std::uint32_t task, const std::atomic<bool>& stop) {
    if (task < tasks.loads.size()) return predict_load(tasks.loads[task], stop).SerializeAsString();
    proto::Validation table;
    for (proto::ValidatedKernel& kernel : price_kernels(tasks.kernels[task - tasks.loads.size()], stop))
      *table.add_kernels() = std::move(kernel);
    return table.SerializeAsString();
  };
}

// validation.json and validation.html; what cannot be written is found out before the first load.
class Output {
 public:
  explicit Output(const ValidateArgs& args) : quiet_(args.logging.quiet) {
    if (!args.residuals.empty()) residuals_.emplace(args.residuals, "--write-residuals " + args.residuals);
    if (args.report_dir.empty()) return;
    folder_.emplace(args.report_dir);
    json_ = &folder_->open("validation.json");
    html_ = &folder_->open("validation.html");
  }
  void write(const proto::Validation& validation) {
    if (residuals_ && !validation.stopped_early()) {
      residuals_->write(to_text(residuals_of(validation)));
      residuals_->commit();
    }
    if (folder_) {
      json_->write(
          validation_json(validation).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
      html_->write(validation_page(validation));
      folder_->commit_all();
    }
    if (quiet_) return;
    print(validation_table(validation, shows_colours(STDOUT_FILENO)));
    if (folder_) print(fmt::format("\nReport: {}\n", (folder_->path() / "validation.html").string()));
    flush_output();
  }

 private:
  bool quiet_;
  std::optional<OutputFile> residuals_;
  std::optional<ReportDir> folder_;
  OutputFile* json_ = nullptr;
  OutputFile* html_ = nullptr;
};

ProgressBar::Mode progress_mode(const ValidateArgs& args) {
  return ProgressBar::mode_for_stderr(!args.logging.quiet && !args.logging.no_progress);
}

// Nothing where a signal ended it.
std::optional<proto::LeaveOneOut> without_each(const std::vector<MeasuredLoad>& loads,
                                               const ValidateArgs& args, std::uint32_t threads,
                                               std::vector<proto::ValidatedRow>& rows) {
  ProgressBar progress(progress_mode(args), "leave one out", "runs");
  const auto on_tick = [&progress](std::size_t done, std::size_t runs) {
    StopFlag::throw_if_requested();
    progress.update({.finished = done, .total = runs});
  };
  try {
    return leave_one_out(loads, args.leave_one_out, threads, on_tick, rows);
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

// Process 0.
int schedule(const ValidateArgs& args, std::uint32_t threads, rank::TaskFarm& farm) {
  const Tasks tasks = read_all(args);
  Output output(args);
  const std::uint32_t num_tasks = tasks.size();
  std::vector<std::optional<proto::ValidatedRow>> rows(tasks.loads.size());
  std::vector<proto::Validation> tables(tasks.kernels.size());
  std::uint32_t finished = 0;
  bool all = false;
  {
    ProgressBar progress(progress_mode(args), "validate",
                         tasks.kernels.empty() ? "loads" : "loads and tables");
    all = farm.run({num_tasks, std::min(threads, num_tasks), task_of(tasks),
                    [&](std::uint32_t task, const std::string& bytes) {
                      if (task < rows.size()) {
                        rows[task].emplace().ParseFromString(bytes);
                      } else {
                        tables[task - rows.size()].ParseFromString(bytes);
                      }
                      ++finished;
                    },
                    [&] {
                      progress.update({.finished = finished, .total = num_tasks});
                      return !StopFlag::requested();
                    }});
  }
  std::vector<proto::ValidatedRow> served;
  for (std::optional<proto::ValidatedRow>& row : rows)
    if (row) served.push_back(std::move(*row));
  std::optional<proto::LeaveOneOut> left_out;
  if (all && !args.leave_one_out.empty()) {
    left_out = without_each(tasks.loads, args, threads, served);
    all = left_out.has_value();
  }
  proto::Validation validation = make_validation(std::move(served));
  if (left_out) *validation.mutable_leave_one_out() = std::move(*left_out);
  for (const proto::Validation& table : tables) validation.mutable_kernels()->MergeFrom(table.kernels());
  validation.set_stopped_early(!all);
  for (const std::string& file : tasks.passes)
    predict_diffusion_passes(file, args.options.hardware, validation);
  for (const std::string& file : tasks.generations) predict_published_figures(file, validation);
  {
    const StopFlag::Writing writing;
    output.write(validation);
  }
  if (farm.loss()) throw rank::RankLost(*farm.loss());
  if (all) return kDone;
  spdlog::error("interrupted; the {} of {} that were finished are in the report", finished, num_tasks);
  return kStoppedEarly;
}

int validate(const ValidateArgs& args, rank::MpiSession& session) {
  set_up_logging(args.logging, session.process() == 0);
  rank::TaskFarm farm(session);
  const bool schedules = farm.group().process == 0;
  if (!schedules) StopFlag::leave_to_process_0();
  const std::uint32_t threads = args.jobs.value_or(rank::cores_of_process(farm.group()));
  if (!schedules) {
    Tasks tasks;
    return farm.serve(threads, [&] {
      tasks = read_all(args);
      return task_of(tasks);
    });
  }
  int status = kStoppedEarly;
  try {
    status = schedule(args, threads, farm);
  } catch (const Stopped&) {  // before anything was served
    farm.shutdown(status);
    throw;
  }
  farm.shutdown(status);
  return status;
}

}  // namespace

void add_validate_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<ValidateArgs>(
      command, action, [](FlagSet& flags, ValidateArgs& args) { declare(flags, args); },
      [&session](ValidateArgs& args, FlagSet&) { return validate(args, session); });
}

}  // namespace tpsim::launch
