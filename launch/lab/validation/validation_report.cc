#include "launch/lab/validation/validation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "launch/lab/served/batch_comparison.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

using Ratios = std::vector<double>;

using Row = proto::ValidatedRow;

double ratio(const proto::MeasuredFigure& figure) { return figure.predicted() / figure.measured(); }

proto::ValidationGroup group(const std::string& by, const std::string& name,
                             const std::vector<const Row*>& rows) {
  proto::ValidationGroup out;
  out.set_by(by);
  out.set_name(name);
  for (const RowFigure& figure : row_figures()) {
    Ratios ratios, refitted, left_out;
    double banded = 0, inside = 0;
    for (const Row* row : rows) {
      if (!(row->*figure.has)()) continue;
      const proto::MeasuredFigure& of = (row->*figure.get)();
      ratios.push_back(ratio(of));
      if (of.has_low()) {
        ++banded;
        inside += of.measured() >= of.low() && of.measured() <= of.high() ? 1 : 0;
      }
      if (of.has_refitted()) refitted.push_back(of.refitted() / of.measured());
      if (of.has_left_out()) left_out.push_back(of.left_out() / of.measured());
    }
    if (ratios.empty()) continue;
    proto::ErrorFigures& errors = *(out.*figure.change_errors)();
    errors = error_figures(ratios);
    if (banded > 0) errors.set_inside(inside / banded);
    if (!refitted.empty()) *errors.mutable_refitted() = error_figures(refitted);
    if (!left_out.empty()) *errors.mutable_left_out() = error_figures(left_out);
  }
  return out;
}

void add_groups(proto::Validation& out) {
  for (const RowGrouping& grouping : row_groupings()) {
    std::map<std::string, std::vector<const Row*>> members;
    for (const Row& row : out.rows()) members[grouping.name_of(row)].push_back(&row);
    for (const auto& [name, rows] : members)
      if (!name.empty()) *out.add_groups() = group(std::string(grouping.by), name, rows);
  }
}

void add_pools(proto::Validation& out) {
  std::set<std::string> known;
  for (const Row& row : out.rows()) {
    if (!row.has_pool_tokens() || !known.insert(row.server()).second) continue;
    proto::ValidatedPool& pool = *out.add_pools();
    pool.set_server(row.server());
    pool.set_measured(static_cast<std::uint64_t>(row.pool_tokens().measured()));
    pool.set_predicted(static_cast<std::uint64_t>(row.pool_tokens().predicted()));
    pool.set_error(ratio(row.pool_tokens()) - 1);
  }
}

// What two settings are compared by: the whole load's time, else the time of a token.
const RowFigure* pair_figure(const Row& a, const Row& b) {
  for (const std::string_view name : {"duration_s", "e2e_ms", "tpot_ms"}) {
    for (const RowFigure& figure : row_figures())
      if (figure.name == name && (a.*figure.has)() && (b.*figure.has)()) return &figure;
  }
  return nullptr;
}

std::string setting_name(const Row& row) {
  const std::string name = row.has_id() ? row.id() : row.server();
  return row.settings().empty() ? row.backend() + " (" + name + ")"
                                : row.backend() + " " + row.settings() + " (" + name + ")";
}

void add_pairs(proto::Validation& out) {
  std::map<std::tuple<std::string, std::string, std::uint32_t, std::string>, std::vector<const Row*>> alike;
  for (const Row& row : out.rows())
    if (!row.setting_by_time()) alike[{row.model(), row.hardware(), row.tp(), row.load()}].push_back(&row);
  proto::ValidatedPairs& pairs = *out.mutable_pairs();
  for (const auto& [key, rows] : alike) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t k = i + 1; k < rows.size(); ++k) {
        const RowFigure* const figure = pair_figure(*rows[i], *rows[k]);
        // The same setting, measured twice, tells how well it can be measured.
        if (figure == nullptr ||
            (rows[i]->backend() == rows[k]->backend() && rows[i]->settings() == rows[k]->settings()))
          continue;
        const Row* fast = rows[i];
        const Row* slow = rows[k];
        if ((fast->*figure->get)().measured() > (slow->*figure->get)().measured()) std::swap(fast, slow);
        const proto::MeasuredFigure& less = (fast->*figure->get)();
        const proto::MeasuredFigure& more = (slow->*figure->get)();
        if (more.measured() <= (1 + kTie) * less.measured()) continue;
        pairs.set_count(pairs.count() + 1);
        if (more.predicted() > less.predicted()) {
          pairs.set_right(pairs.right() + 1);
          continue;
        }
        proto::ValidatedPair& wrong = *pairs.add_wrong();
        wrong.set_model(fast->model());
        wrong.set_hardware(fast->hardware());
        wrong.set_tp(fast->tp());
        wrong.set_load(fast->load());
        wrong.set_figure(std::string(figure->name));
        wrong.set_faster(setting_name(*fast));
        wrong.set_slower(setting_name(*slow));
        wrong.set_measured(more.measured() / less.measured());
        wrong.set_predicted(more.predicted() / less.predicted());
      }
    }
  }
}

// One entry for each server and mode, and one for all servers.
void add_steps(proto::Validation& out) {
  struct Sum {
    Ratios ratios;
    std::uint64_t without = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const Row& row : out.rows()) {
    for (const proto::StepComparison& steps : row.steps()) {
      for (const std::string& server : {std::string(), row.server()}) {
        Sum& sum = sums[{server, steps.mode()}];
        sum.ratios.insert(sum.ratios.end(), steps.ratios().begin(), steps.ratios().end());
        sum.without += steps.without_counterpart();
      }
    }
  }
  for (const auto& [key, sum] : sums) {
    if (sum.ratios.empty() && sum.without == 0) continue;
    proto::StepComparison& steps = *out.add_steps();
    steps.set_server(key.first.empty() ? "all" : key.first);
    steps.set_mode(key.second);
    steps.set_steps(sum.ratios.size());
    steps.set_without_counterpart(sum.without);
    *steps.mutable_error() = error_figures(sum.ratios);
  }
  for (Row& row : *out.mutable_rows())
    for (proto::StepComparison& steps : *row.mutable_steps()) steps.clear_ratios();
}

using Row = proto::ValidatedRow;
using Group = proto::ValidationGroup;

constexpr RowGrouping kGroupings[] = {
    {"all", [](const Row&) { return std::string("all"); }},
    {"model", [](const Row& row) { return row.model(); }},
    {"hardware", [](const Row& row) { return row.hardware(); }},
    {"backend", [](const Row& row) { return row.backend(); }},
    {"tp", [](const Row& row) { return std::to_string(row.tp()); }},
    {"load_kind", [](const Row& row) { return row.load_kind(); }},
    {"settings", [](const Row& row) { return row.settings(); }},
    {"server", [](const Row& row) { return row.server(); }},
};

constexpr RowFigure kFigures[] = {
    {&Row::has_tpot_ms, &Row::tpot_ms, &Row::mutable_tpot_ms, &Group::has_tpot_ms, &Group::tpot_ms,
     &Group::mutable_tpot_ms, "tpot_ms", "TPOT", &MeasuredFigures::tpot_ms},
    {&Row::has_ttft_ms, &Row::ttft_ms, &Row::mutable_ttft_ms, &Group::has_ttft_ms, &Group::ttft_ms,
     &Group::mutable_ttft_ms, "ttft_ms", "TTFT", &MeasuredFigures::ttft_ms},
    {&Row::has_e2e_ms, &Row::e2e_ms, &Row::mutable_e2e_ms, &Group::has_e2e_ms, &Group::e2e_ms,
     &Group::mutable_e2e_ms, "e2e_ms", "latency", &MeasuredFigures::e2e_ms},
    {&Row::has_duration_s, &Row::duration_s, &Row::mutable_duration_s, &Group::has_duration_s,
     &Group::duration_s, &Group::mutable_duration_s, "duration_s", "duration", &MeasuredFigures::duration_s},
    {&Row::has_output_throughput, &Row::output_throughput, &Row::mutable_output_throughput,
     &Group::has_output_throughput, &Group::output_throughput, &Group::mutable_output_throughput,
     "output_throughput", "output tok/s", &MeasuredFigures::output_throughput},
};

}  // namespace

proto::Validation make_validation(std::vector<proto::ValidatedRow> rows) {
  proto::Validation out;
  out.set_version(kValidationVersion);
  for (proto::ValidatedRow& row : rows) {
    if (!row.has_refusal()) {
      for (proto::StepComparison& steps : *row.mutable_steps())
        *steps.mutable_error() = error_figures({steps.ratios().begin(), steps.ratios().end()});
      *out.add_rows() = std::move(row);
      continue;
    }
    proto::NotAsked& refused = *out.add_not_asked();
    if (row.has_id()) refused.set_id(row.id());
    if (row.has_server()) refused.set_server(row.server());
    refused.set_load(row.load());
    refused.set_file(row.file());
    refused.set_reason(row.refusal());
  }
  add_groups(out);
  add_pools(out);
  add_pairs(out);
  add_steps(out);
  check_bands(out);
  return out;
}

nlohmann::ordered_json validation_json(proto::Validation validation) {
  for (proto::ValidatedRow& row : *validation.mutable_rows()) {
    row.clear_measured_timeline();
    row.clear_predicted_timeline();
    row.clear_pool_tokens();
    row.clear_steps();
  }
  return to_json(validation);
}

std::string validation_page(const proto::Validation& validation) {
  return fill_page(validation_template(), to_json(validation));
}

std::span<const RowGrouping> row_groupings() { return kGroupings; }

std::string server_of(const Row& row) {
  if (row.has_server()) return row.server();
  return fmt::format("{} {} {} {}", row.traits().model(), row.settings(), row.traits().hardware(),
                     row.traits().gpus());
}

std::span<const RowFigure> row_figures() { return kFigures; }

}  // namespace tpsim::launch
