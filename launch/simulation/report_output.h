// Where the results of run and compare go: the files of --report-dir and the table on standard output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "launch/report/csv_writer.h"
#include "launch/report/report_dir.h"
#include "launch/report/step_profile.h"
#include "launch/simulation/all_backends.h"
#include "proto/base/output_file.h"
#include "proto/report.pb.h"
#include "scheduler/records.h"

namespace tpsim::launch {

class ReportOutput {
 public:
  enum class Kind { kRun, kComparison, kSweep };

  // Opens the files of --report-dir, if that was given: what cannot be written is found out before the first
  // run. Throws UserError naming --report-dir.
  ReportOutput(const ServerArgs& args, Kind kind);

  // How many runs there will be, if nothing stops them.
  void plan(std::size_t runs) { report_.set_planned_runs(static_cast<std::uint32_t>(runs)); }
  // Of a sweep: what varies, and a setting that cannot be carried out.
  void begin_sweep(const proto::Sweep& sweep) { *report_.mutable_sweep() = sweep; }
  void refuse(const std::map<std::string, std::string>& settings, const std::string& reason);
  // Of --attention-backends all: what was refused and left out.
  void note(const AllBackends& all) { report_.MergeFrom(all.others); }
  // Records of the run that begins go there; those of a sweep are not kept.
  scheduler::RunObserver& begin_run(const std::string& backend);
  void end_run(proto::RunReport report);

  // Of the run that goes on, with --checkpoint: its records so far.
  void save_records(StateWriter& state);
  void load_records(StateReader& state);
  // The report is in place, and nothing goes on.
  void remove_spools();

  // Whether no run has ended yet.
  bool empty() const { return report_.runs().empty(); }

  // After the last run: puts every file in place, prints the table and the path of report.html.
  void write();

 private:
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
};

}  // namespace tpsim::launch
