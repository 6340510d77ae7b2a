// How the runs of a comparison are called, and which one is best.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::launch {

// The axis of a sweep that --attention-backends makes.
inline constexpr std::string_view kBackendAxis = "attention_backends";

using Settings = google::protobuf::Map<std::string, std::string>;

// "--page-size" of the axis "page_size".
std::string flag_of(const proto::SweepAxis& axis);
// The values of `settings` with their flags, in the order of the sweep's axes.
std::string setting_name(const proto::ComparisonReport& report, const Settings& settings);
// How `run` is called among the others: its backend or, of a sweep, what varies:
// "triton, --tp-size 8, --page-size 64".
std::string run_name(const proto::ComparisonReport& report, const proto::RunReport& run);
bool same(const Settings& a, const Settings& b);
// GPUs of all replicas and stages of the run.
std::uint32_t num_gpus(const proto::RunReport& run);

// What the rates of runs are divided by when runs are compared: the GPUs of each where runs of the report
// have different numbers of them.
class RateUnit {
 public:
  explicit RateUnit(const proto::ComparisonReport& report);
  bool per_gpu() const { return per_gpu_; }
  double of(const proto::RunReport& run) const { return per_gpu_ ? num_gpus(run) : 1; }
  // Behind "tokens/s".
  std::string_view name() const { return per_gpu_ ? " a GPU" : ""; }

 private:
  bool per_gpu_ = false;
};
// "69.7", or "?" where it is unknown; and the line that says why, empty where no run's is.
std::string hit_rate_cell(const proto::RunReport& run);
std::string hit_rate_line(const proto::ComparisonReport& report);

// Columns of a table of runs that a narrow terminal goes without, the least wanted first.
std::vector<std::string> less_wanted_columns();

bool is_best(const proto::ComparisonReport& report, const proto::RunReport& run);

// The runs that may be compared, in the order of the report: those that served the same requests, which is
// all of them or, where a pool or a context is too short for some, as many as any other run served. One that
// stopped early has only served the first of them, and one that cut or refused requests had less to do.
std::vector<const proto::RunReport*> comparable_runs(const proto::ComparisonReport& report);

struct Choice {
  const proto::RunReport* best = nullptr;  // null: there is none
  std::string reason;
};
// The rule. Of runs with different numbers of GPUs those come first that keep up with what is offered: GPUs
// that are overloaded are always busy. Then, each step among the runs within 1 % of the highest of the step
// before, rates by RateUnit: the highest rate of --max-goodput-rate, where it was searched; the highest
// goodput, with --goodput; the highest total token throughput; the lowest mean end-to-end latency, because
// under an open load settings that keep up all serve what arrives. REQUIRES: `runs` are some of
// comparable_runs(report).
Choice choose_among(const proto::ComparisonReport& report, const std::vector<const proto::RunReport*>& runs);

// Fills best, best_reason and best_setting by the rule above. Of a comparison that stopped early there is a
// best run only where two or more were finished.
void choose_best(proto::ComparisonReport& report);

}  // namespace tpsim::launch
