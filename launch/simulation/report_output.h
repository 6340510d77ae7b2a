// Where the results of runs go: --report-dir and the table on standard output, --output-file, --trace-out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/perfetto/run_trace.h"
#include "launch/report/csv_writer.h"
#include "launch/report/report_dir.h"
#include "launch/report/step_profile.h"
#include "launch/simulation/sweep.h"
#include "proto/base/output_file.h"
#include "proto/report.pb.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/records.h"

namespace tpsim::launch {

// Of run and compare: the files of --report-dir and the table on standard output.
class ReportOutput {
 public:
  enum class Kind { kRun, kComparison, kSweep };

  // Opens the files of --report-dir, if that was given: what cannot be written is found out before the first
  // run. `models`: there are several in some run, which rows of requests say. Throws UserError naming
  // --report-dir.
  ReportOutput(const ServerArgs& args, Kind kind, bool models = false);

  // How many runs there will be, if nothing stops them.
  void plan(std::size_t runs) { report_.set_planned_runs(static_cast<std::uint32_t>(runs)); }
  // Of a sweep: what varies, and a setting that cannot be carried out.
  void begin_sweep(const proto::Sweep& sweep) { *report_.mutable_sweep() = sweep; }
  void refuse(const std::map<std::string, std::string>& settings, const std::string& reason);
  // Of --attention-backends all: what was refused and left out.
  void note(const AllBackends& all) { report_.MergeFrom(all.others); }
  // Records of the run that begins go there; those of a sweep are not kept. `models`: names, by
  // RequestRecord::model from 1.
  scheduler::RunObserver& begin_run(const std::string& backend, const std::vector<std::string>& models = {});
  // `launch`: the commands that start it; of comparisons.
  void end_run(proto::RunReport report, std::vector<std::string> launch = {});

  // Of the run that goes on, with --checkpoint: its records so far.
  void save_records(StateWriter& state);
  void load_records(StateReader& state);
  // The report is in place, and nothing goes on.
  void remove_spools();

  // Whether no run has ended yet.
  bool empty() const { return report_.runs().empty(); }

  // After write(): with the best run, ties and the front, of comparisons.
  const proto::ComparisonReport& report() const { return report_; }

  // After the last run: puts every file in place, prints the table and the path of report.html.
  void write();

 private:
  // Of a comparison; empty where there is no best run.
  std::vector<std::string> launch_of_best() const;
  void write_files();

  const Kind kind_;
  const bool quiet_;
  scheduler::NoRecords no_records_;  // for runs without --report-dir, and of a sweep
  std::optional<ReportDir> folder_;
  OutputFile* json_ = nullptr;
  OutputFile* html_ = nullptr;
  OutputFile* sweep_ = nullptr;  // sweep.csv, of a sweep
  std::optional<CsvWriter> csv_;
  std::vector<StepProfile> steps_;  // of the runs
  proto::ComparisonReport report_;
  std::vector<std::vector<std::string>> launch_;  // of the runs
};

// --output-file: one JSON line for each run, appended, with the keys of SGLang's serving benchmark.
class ResultFile {
 public:
  // "": no file, write() does nothing. Throws UserError, naming --output-file, for a path that cannot be
  // appended to; nothing is created yet.
  explicit ResultFile(std::string path);
  // Makes the line of `report`.
  void add(const proto::RunReport& report);
  // Appends the lines, all or none: after the report, which must not be lost where this fails. Throws
  // UserError where they cannot be written.
  void write() const;

 private:
  std::string path_;
  std::string lines_;
};

// --trace-out: the Perfetto trace of a run, from the opening of its file to its place under its name.
class PerfettoOutput : private scheduler::RunObserver {
 public:
  // Opens the file, if one was asked for: what cannot be written is found out before the run. Throws
  // UserError naming --trace-out.
  explicit PerfettoOutput(const ServerArgs& args);

  // The next replica of the run that is to begin, which `executor` carries out; `label` of one of several.
  // Both must outlive the run.
  void add_replica(const Deployment& deployment, const rank::DeploymentExecutor& executor,
                   const std::string& label = {});
  // What takes the records of the run and passes them on to `sink`, which must outlive it; `sink` itself
  // where no trace was asked for.
  scheduler::RunObserver& begin_run(scheduler::RunObserver& sink);
  // The same of passes alone, which nobody schedules; null where no trace was asked for.
  scheduler::RunObserver* begin_replay(const Deployment& deployment,
                                       const rank::DeploymentExecutor& executor);
  // Puts the file in place, and warns where it does not hold all of the run.
  void write();

 private:
  void add(const Deployment& deployment, const rank::DeploymentExecutor& executor, const std::string& label,
           bool scheduled);
  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord& record) override;
  scheduler::StepTally* tally_of(std::uint32_t replica) override { return sink_->tally_of(replica); }
  void on_routed(const scheduler::RoutedRecord& record) override { trace_->add_choice(record); }
  void on_kv_sent(const scheduler::KvSentRecord& record) override { trace_->add_transfer(record); }
  bool on_progress(const scheduler::Progress& progress) override { return sink_->on_progress(progress); }

  const std::string path_;
  std::optional<OutputFile> file_;
  std::optional<RunTrace> trace_;
  // Of the run that goes on.
  std::vector<const rank::DeploymentExecutor*> executors_;  // of the replicas
  scheduler::NoRecords no_records_;
  scheduler::RunObserver* sink_ = &no_records_;
  std::vector<rank::RankSeconds> seconds_;  // scratch
};

}  // namespace tpsim::launch
