#include "launch/report_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "launch/report/comparison.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "proto/versions.h"

namespace tpsim::launch {

ReportOutput::ReportOutput(const ServerArgs& args, bool compare) : compare_(compare), quiet_(args.quiet) {
  report_.set_version(kRunReportVersion);
  if (args.report_dir.empty()) return;
  folder_.emplace(args.report_dir);
  csv_.emplace(*folder_);
}

scheduler::RunObserver& ReportOutput::begin_run(const std::string& backend) {
  if (!csv_) return no_records_;
  csv_->begin_run(backend);
  return *csv_;
}

void ReportOutput::end_run(proto::RunReport report) { *report_.add_runs() = std::move(report); }

bool ReportOutput::stopped_early() const {
  return report_.runs_size() > 0 && report_.runs(report_.runs_size() - 1).stopped_early();
}

void ReportOutput::write_files() {
  csv_->finish();
  const google::protobuf::Message& top = compare_
                                             ? static_cast<const google::protobuf::Message&>(report_)
                                             : static_cast<const google::protobuf::Message&>(report_.runs(0));
  folder_->write("report.json", to_json(top).dump(2) + "\n");
  folder_->write("report.html", html_page(report_));
  folder_->commit_all();
}

void ReportOutput::write() {
  if (compare_) choose_best(report_);
  if (folder_) write_files();
  if (quiet_) return;
  const bool colour = isatty(STDOUT_FILENO) != 0;
  fmt::print("{}", compare_ ? comparison_table(report_, colour) : run_summary(report_.runs(0)));
  if (folder_) fmt::print("\nReport: {}\n", (folder_->path() / "report.html").string());
  std::fflush(stdout);
}

}  // namespace tpsim::launch
