// requests.csv and steps.csv, written while a run goes on. Times in seconds of the run's clock.
#pragma once

#include <fmt/format.h>

#include <string>

#include "launch/report/report_dir.h"
#include "scheduler/records.h"

namespace tpsim::launch {

class CsvWriter : public scheduler::RunObserver {
 public:
  // Opens both files in `dir`. The first column names the backend of each run.
  explicit CsvWriter(ReportDir& dir);

  // Rows from here on belong to this run.
  void begin_run(const std::string& backend) { backend_ = backend; }
  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord& record) override;
  bool on_progress(const scheduler::Progress&) override { return true; }
  // Hands what is buffered to the files; before ReportDir::commit_all().
  void finish();

 private:
  ReportFile& requests_;
  ReportFile& steps_;
  std::string backend_;
  fmt::memory_buffer request_buffer_;
  fmt::memory_buffer step_buffer_;
};

}  // namespace tpsim::launch
