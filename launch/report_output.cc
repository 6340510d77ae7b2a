#include "launch/report_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "launch/report/comparison.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "launch/standard_output.h"
#include "launch/terminal.h"
#include "proto/versions.h"

namespace tpsim::launch {

ReportOutput::ReportOutput(const ServerArgs& args, bool compare) : compare_(compare), quiet_(args.quiet) {
  report_.set_version(kRunReportVersion);
  if (args.report_dir.empty()) return;
  folder_.emplace(args.report_dir);
  json_ = &folder_->open("report.json");
  html_ = &folder_->open("report.html");
  csv_.emplace(*folder_, CsvOptions{args.compress, args.steps_every});
}

scheduler::RunObserver& ReportOutput::begin_run(const std::string& backend) {
  if (!csv_) return no_records_;
  csv_->begin_run(backend);
  return records_.emplace(*csv_, steps_.emplace_back());
}

void ReportOutput::end_run(proto::RunReport report) { *report_.add_runs() = std::move(report); }

void ReportOutput::write_files() {
  csv_->finish();
  const google::protobuf::Message& top = compare_
                                             ? static_cast<const google::protobuf::Message&>(report_)
                                             : static_cast<const google::protobuf::Message&>(report_.runs(0));
  json_->write(to_json(top).dump(2) + "\n");
  html_->write(html_page(report_, std::move(steps_)));
  folder_->commit_all();
}

void ReportOutput::write() {
  if (compare_) choose_best(report_);
  if (folder_) write_files();
  if (quiet_) return;
  const bool colour = shows_colours(STDOUT_FILENO);
  print(compare_ ? comparison_table(report_, colour) : run_summary(report_.runs(0)));
  if (folder_) print(fmt::format("\nReport: {}\n", (folder_->path() / "report.html").string()));
  flush_output();
}

}  // namespace tpsim::launch
