#include "launch/simulation/report_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "launch/cli/terminal.h"
#include "launch/error_bands/residuals.h"
#include "launch/report/comparison.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "launch/report/page_data.h"
#include "launch/report/sweep_report.h"
#include "launch/report/ties.h"
#include "proto/base/archive.h"
#include "proto/versions.h"

namespace tpsim::launch {

ReportOutput::ReportOutput(const ServerArgs& args, Kind kind) : kind_(kind), quiet_(args.quiet) {
  report_.set_version(kRunReportVersion);
  if (args.report_dir.empty()) return;
  folder_.emplace(args.report_dir);
  json_ = &folder_->open("report.json");
  html_ = &folder_->open("report.html");
  if (kind_ == Kind::kSweep) {
    sweep_ = &folder_->open("sweep.csv");
    for (const char* records : {"requests.csv", "steps.csv", "requests.csv.gz", "steps.csv.gz"})
      folder_->leave_out(records);
  } else {
    csv_.emplace(*folder_, CsvOptions{args.compress, args.steps_every, args.checkpoint_file(),
                                      !args.resume.empty(), args.goodput});
    folder_->leave_out("sweep.csv");
  }
}

void ReportOutput::refuse(const std::map<std::string, std::string>& settings, const std::string& reason) {
  proto::RefusedSetting& refused = *report_.add_refused();
  refused.mutable_settings()->insert(settings.begin(), settings.end());
  refused.set_reason(reason);
}

scheduler::RunObserver& ReportOutput::begin_run(const std::string& backend) {
  if (!csv_) return no_records_;
  csv_->begin_run(backend, &steps_.emplace_back());
  return *csv_;
}

void ReportOutput::save_records(StateWriter& state) {
  if (!csv_) return;
  csv_->save(state);
  state(steps_.back());
}

void ReportOutput::load_records(StateReader& state) {
  if (!csv_) return;
  csv_->load(state);
  state(steps_.back());
}

void ReportOutput::remove_spools() {
  if (csv_) csv_->remove_spools();
}

void ReportOutput::end_run(proto::RunReport report) { *report_.add_runs() = std::move(report); }

void ReportOutput::write_files() {
  if (csv_) csv_->finish();
  if (sweep_ != nullptr) sweep_->write(sweep_csv(report_));
  nlohmann::ordered_json report = to_json(report_);
  json_->write((kind_ == Kind::kRun ? report["runs"][0] : report).dump(2) + "\n");
  html_->write(html_page(page_data(std::move(report), std::move(steps_))));
  folder_->commit_all();
}

void ReportOutput::write() {
  if (kind_ != Kind::kRun) {
    choose_best(report_);
    find_ties(catalogue_residuals(), report_);
    mark_pareto(report_);
    choose_best_by_load(report_);
    keep_what_stands_out(report_);
  }
  if (folder_) write_files();
  if (quiet_) return;
  const bool colour = shows_colours(STDOUT_FILENO);
  print(kind_ == Kind::kRun          ? run_summary(report_.runs(0))
        : kind_ == Kind::kComparison ? comparison_table(report_, colour)
                                     : sweep_table(report_, colour));
  if (folder_) print(fmt::format("\nReport: {}\n", (folder_->path() / "report.html").string()));
  flush_output();
}

}  // namespace tpsim::launch
