// Where the results of run and compare go: the files of --report-dir and the table on standard output.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launch/report/csv_writer.h"
#include "launch/report/report_dir.h"
#include "launch/server_args.h"
#include "proto/output_file.h"
#include "proto/report.pb.h"
#include "scheduler/records.h"

namespace tpsim::launch {

class ReportOutput {
 public:
  // Opens the files of --report-dir, if that was given: what cannot be written is found out before the first
  // run. Throws UserError naming --report-dir.
  ReportOutput(const ServerArgs& args, bool compare);

  // Records of the run that begins go there.
  scheduler::RunObserver& begin_run(const std::string& backend);
  void end_run(proto::RunReport report);

  // Whether no run has ended yet.
  bool empty() const { return report_.runs().empty(); }

  // After the last run: puts every file in place, prints the table and the path of report.html.
  void write();

 private:
  // For runs without --report-dir.
  class NoRecords : public scheduler::RunObserver {
   public:
    void on_request(const scheduler::RequestRecord&) override {}
    void on_step(const scheduler::StepRecord&) override {}
    bool on_progress(const scheduler::Progress&) override { return true; }
  };

  void write_files();

  const bool compare_;
  const bool quiet_;
  NoRecords no_records_;
  std::optional<ReportDir> folder_;
  OutputFile* json_ = nullptr;
  OutputFile* html_ = nullptr;
  std::optional<CsvWriter> csv_;
  proto::ComparisonReport report_;
};

}  // namespace tpsim::launch
