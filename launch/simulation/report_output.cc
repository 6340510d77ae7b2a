#include "launch/simulation/report_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "launch/cli/terminal.h"
#include "launch/error_bands/residuals.h"
#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "launch/report/sweep_report.h"
#include "launch/report/ties.h"
#include "proto/base/archive.h"
#include "proto/base/error.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& path, int error) {
  throw_user_error("--output-file {}: cannot be written ({}); give a file that can be appended to", path,
                   std::strerror(error));
}

// A number of server_args; null where the option does not belong to this load, and text that is none as text.
Json option(const proto::RunReport& report, const std::string& name) {
  const auto found = report.server_args().find(name);
  if (found == report.server_args().end() || found->second == "none") return nullptr;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value)) return found->second;
  return value == std::floor(value) ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json server_info(const proto::RunReport& report) {
  Json info = {{"model", report.model()},
               {"hardware", report.hardware()},
               {"attention_backend", report.backend()},
               {"executor", report.executor()},
               {"clock", report.clock()}};
  std::map<std::string, std::string> sorted(report.server_args().begin(), report.server_args().end());
  for (auto& [name, value] : sorted) info[name] = std::move(value);
  return info;
}

// What the benchmark writes into a line of its result file (benchmark/serving.py of 0.5.23), as far as a
// simulation knows it: `backend` is "tpsim", `server_info` what was simulated, `accept_length` null; tokens
// are never retokenized. An unlimited request_rate is the text "inf". A run that stopped early has one key
// more.
Json benchmark_result(const proto::RunReport& r) {
  const auto dataset = r.server_args().find("dataset_name");
  const bool named = dataset != r.server_args().end() && !dataset->second.empty();
  Json result = {{"tag", nullptr},
                 {"backend", "tpsim"},
                 {"dataset_name", named ? dataset->second : r.trace()},
                 {"request_rate", option(r, "request_rate")},
                 {"max_concurrency", option(r, "max_concurrency")},
                 {"sharegpt_output_len", nullptr},
                 {"random_input_len", option(r, "random_input_len")},
                 {"random_output_len", option(r, "random_output_len")},
                 {"random_range_ratio", option(r, "random_range_ratio")},
                 {"server_info", server_info(r)}};
  const Json report = to_json(r);
  for (const char* name : {"duration", "completed", "total_input_tokens"}) result[name] = report[name];
  result["total_input_text_tokens"] = r.total_input_tokens();
  result["total_input_vision_tokens"] = 0;
  result["total_output_tokens"] = r.total_output_tokens();
  result["total_output_tokens_retokenized"] = r.total_output_tokens();
  for (const char* of : {"request", "input", "output", "total"})
    result[fmt::format("{}_throughput", of)] = report[fmt::format("{}_throughput", of)];
  for (const char* latency : {"e2e_latency", "ttft", "tpot", "itl"}) {
    for (const char* figure : {"mean", "median", "std", "p90", "p95", "p99"}) {
      const std::string name = fmt::format("{}_{}_ms", figure, latency);
      result[name] = report[name];
    }
  }
  result["concurrency"] = r.concurrency();
  result["accept_length"] = nullptr;
  if (r.stopped_early()) result["stopped_early"] = true;
  return result;
}

}  // namespace

ReportOutput::ReportOutput(const ServerArgs& args, Kind kind, bool models) : kind_(kind), quiet_(args.quiet) {
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
    csv_.emplace(
        *folder_,
        CsvOptions{args.compress, args.steps_every, args.checkpoint_file(), !args.resume.empty(),
                   args.parallel.replicas() > 1 || !args.router.fleet.empty(),
                   args.disaggregation.pd_disaggregation, models, args.hicache.enable, args.goodput});
    folder_->leave_out("sweep.csv");
  }
}

void ReportOutput::refuse(const std::map<std::string, std::string>& settings, const std::string& reason) {
  proto::RefusedSetting& refused = *report_.add_refused();
  refused.mutable_settings()->insert(settings.begin(), settings.end());
  refused.set_reason(reason);
}

scheduler::RunObserver& ReportOutput::begin_run(const std::string& backend,
                                                const std::vector<std::string>& models) {
  if (!csv_) return no_records_;
  csv_->begin_run(backend, &steps_.emplace_back(), models);
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

void ReportOutput::end_run(proto::RunReport report, std::vector<std::string> launch) {
  *report_.add_runs() = std::move(report);
  launch_.push_back(std::move(launch));
}

std::vector<std::string> ReportOutput::launch_of_best() const {
  for (int i = 0; i < report_.runs_size(); ++i) {
    if (is_best(report_, report_.runs(i))) return launch_[static_cast<std::size_t>(i)];
  }
  return {};
}

void ReportOutput::write_files() {
  if (csv_) csv_->finish();
  if (sweep_ != nullptr) sweep_->write(sweep_csv(report_));
  nlohmann::ordered_json report = to_json(report_);
  if (const std::vector<std::string> launch = launch_of_best(); !launch.empty()) report["launch"] = launch;
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
  const int width = terminal_columns(STDOUT_FILENO);
  print(kind_ == Kind::kRun          ? run_summary(report_.runs(0))
        : kind_ == Kind::kComparison ? comparison_table(report_, colour, width)
                                     : sweep_table(report_, colour, width));
  if (const std::vector<std::string> launch = launch_of_best(); !launch.empty())
    print(fmt::format("\nLaunch:\n  {}\n", fmt::join(launch, "\n  ")));
  if (folder_) print(fmt::format("\nReport: {}\n", (folder_->path() / "report.html").string()));
  flush_output();
}

ResultFile::ResultFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  if (std::filesystem::is_directory(path_, ignored)) refuse(path_, EISDIR);
  const bool there = ::access(path_.c_str(), F_OK) == 0;
  const std::string place = there ? path_ : parent.empty() ? "." : parent.string();
  if (::access(place.c_str(), W_OK) != 0) refuse(path_, errno);
}

void ResultFile::add(const proto::RunReport& report) {
  if (path_.empty()) return;
  lines_ += benchmark_result(report).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void ResultFile::write() const {
  if (lines_.empty()) return;
  errno = 0;
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  if (!file) refuse(path_, errno);
  std::error_code unknown;
  const bool regular = std::filesystem::is_regular_file(path_, unknown);
  const std::uintmax_t before = regular ? std::filesystem::file_size(path_, unknown) : 0;
  std::string text = lines_;
  if (before > 0) {  // what another program left without an end of line stays a line
    std::ifstream reader(path_, std::ios::binary);
    if (reader.seekg(-1, std::ios::end) && reader.get() != '\n') text.insert(0, 1, '\n');
  }
  if (file.write(text.data(), static_cast<std::streamsize>(text.size())).flush()) return;
  const int error = errno;
  file.close();
  if (regular) std::filesystem::resize_file(path_, before, unknown);
  refuse(path_, error);
}

PerfettoOutput::PerfettoOutput(const ServerArgs& args) : path_(args.trace_out) {
  if (path_.empty()) return;
  file_.emplace(path_, "--trace-out " + path_, OutputFile::kFastGzip);
  if (file_->is_standard_output() && !args.quiet)
    throw_user_error(
        "--trace-out {}: is standard output, where the summary goes; name a file, or give --quiet", path_);
  trace_.emplace(*file_, TraceWindow{args.trace_from, args.trace_until});
}

void PerfettoOutput::add_replica(const Deployment& deployment, const rank::DeploymentExecutor& executor,
                                 const std::string& label) {
  if (trace_) add(deployment, executor, label, /*scheduled=*/true);
}

scheduler::RunObserver& PerfettoOutput::begin_run(scheduler::RunObserver& sink) {
  if (!trace_) return sink;
  sink_ = &sink;
  return *this;
}

scheduler::RunObserver* PerfettoOutput::begin_replay(const Deployment& deployment,
                                                     const rank::DeploymentExecutor& executor) {
  if (!trace_) return nullptr;
  add(deployment, executor, {}, /*scheduled=*/false);
  return this;
}

void PerfettoOutput::add(const Deployment& deployment, const rank::DeploymentExecutor& executor,
                         const std::string& label, bool scheduled) {
  const std::string name =
      fmt::format("{}{}{} on {}, {}", label, label.empty() ? "" : ": ", deployment.model.name,
                  deployment.header.hardware(), deployment.attention.backends.name());
  trace_->add_replica(name, deployment.ranks.num_ranks(), deployment.ranks.pp_size, executor.rank_groups(),
                      scheduled);
  executors_.push_back(&executor);
}

void PerfettoOutput::on_request(const scheduler::RequestRecord& record) {
  trace_->add_request(record);
  sink_->on_request(record);
}

void PerfettoOutput::on_step(const scheduler::StepRecord& record) {
  executors_[record.replica]->last_pass(seconds_);
  trace_->add_step(record, seconds_);
  sink_->on_step(record);
}

void PerfettoOutput::write() {
  if (!trace_) return;
  trace_->finish();
  file_->commit();
  if (std::isfinite(trace_->cut_at()))
    spdlog::warn(
        "--trace-out {}: ends at {:.6g} s of the run's clock, where it had become {} MB, which is what "
        "browsers have room for; choose the part that you want to see with --trace-window FROM:UNTIL",
        path_, trace_->cut_at(), RunTrace::kMostBytes >> 20);
}

}  // namespace tpsim::launch
