#include "launch/validation/validation_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "launch/report/json_writer.h"
#include "launch/validation/band_check.h"
#include "launch/validation/error_figures.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

using Ratios = std::vector<double>;

// The figures of a row that were measured, by name.
struct FigureOf {
  bool (proto::ValidatedRow::*has)() const;
  const proto::MeasuredFigure& (proto::ValidatedRow::*get)() const;
  proto::ErrorFigures* (proto::ValidationGroup::*group)();
  const char* name;
};
using Row = proto::ValidatedRow;
using Group = proto::ValidationGroup;
constexpr FigureOf kFigures[] = {
    {&Row::has_ttft_ms, &Row::ttft_ms, &Group::mutable_ttft_ms, "ttft_ms"},
    {&Row::has_tpot_ms, &Row::tpot_ms, &Group::mutable_tpot_ms, "tpot_ms"},
    {&Row::has_e2e_ms, &Row::e2e_ms, &Group::mutable_e2e_ms, "e2e_ms"},
    {&Row::has_duration_s, &Row::duration_s, &Group::mutable_duration_s, "duration_s"},
};

double ratio(const proto::MeasuredFigure& figure) { return figure.predicted() / figure.measured(); }

proto::ValidationGroup group(const std::string& by, const std::string& name,
                             const std::vector<const Row*>& rows) {
  proto::ValidationGroup out;
  out.set_by(by);
  out.set_name(name);
  for (const FigureOf& figure : kFigures) {
    Ratios ratios;
    for (const Row* row : rows)
      if ((row->*figure.has)()) ratios.push_back(ratio((row->*figure.get)()));
    if (!ratios.empty()) *(out.*figure.group)() = error_figures(ratios);
  }
  return out;
}

void add_groups(proto::Validation& out) {
  using Key = std::string (*)(const Row&);
  constexpr std::pair<const char*, Key> kKeys[] = {
      {"all", [](const Row&) { return std::string("all"); }},
      {"model", [](const Row& row) { return row.model(); }},
      {"hardware", [](const Row& row) { return row.hardware(); }},
      {"backend", [](const Row& row) { return row.backend(); }},
      {"tp", [](const Row& row) { return std::to_string(row.tp()); }},
      {"load_kind", [](const Row& row) { return row.load_kind(); }},
      {"settings", [](const Row& row) { return row.settings(); }},
      {"server", [](const Row& row) { return row.server(); }},
  };
  for (const auto& [by, key] : kKeys) {
    std::map<std::string, std::vector<const Row*>> members;
    for (const Row& row : out.rows()) members[key(row)].push_back(&row);
    for (const auto& [name, rows] : members)
      if (!name.empty()) *out.add_groups() = group(by, name, rows);
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
const FigureOf* pair_figure(const Row& a, const Row& b) {
  for (const char* name : {"duration_s", "e2e_ms", "tpot_ms"}) {
    for (const FigureOf& figure : kFigures)
      if (std::string_view(figure.name) == name && (a.*figure.has)() && (b.*figure.has)()) return &figure;
  }
  return nullptr;
}

std::string setting_name(const Row& row) {
  const std::string who = row.has_id() ? row.id() : row.server();
  return row.settings().empty() ? row.backend() + " (" + who + ")"
                                : row.backend() + " " + row.settings() + " (" + who + ")";
}

void add_pairs(proto::Validation& out) {
  std::map<std::tuple<std::string, std::string, std::uint32_t, std::string>, std::vector<const Row*>> alike;
  for (const Row& row : out.rows())
    alike[{row.model(), row.hardware(), row.tp(), row.load()}].push_back(&row);
  proto::ValidatedPairs& pairs = *out.mutable_pairs();
  for (const auto& [key, rows] : alike) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t k = i + 1; k < rows.size(); ++k) {
        const FigureOf* const figure = pair_figure(*rows[i], *rows[k]);
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
        wrong.set_figure(figure->name);
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

}  // namespace tpsim::launch
