#include "launch/lab/calibrate/fit_report.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "launch/report/text_table.h"

namespace tpsim::calibrate {
namespace {

using launch::TextTable;

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

// Seconds in microseconds.
std::string shown(const Coefficient& coefficient, double value) {
  return coefficient.field.ends_with("seconds") ? fmt::format("{:.4g} us", 1e6 * value)
                                                : fmt::format("{:.4g}", value);
}

std::string fitted(const ServingFit& fit, bool colour) {
  TextTable table;
  table.rows.push_back({"fitted", "before", "after", "+- %", "rows", "error left, %", "p90"});
  for (const CoefficientChange& change : fit.changes) {
    if (!change.fitted.told) continue;
    table.rows.push_back({change.coefficient.name() + (change.fitted.at_bound ? " (at its bound)" : ""),
                          shown(change.coefficient, change.before), shown(change.coefficient, change.after),
                          percent(std::exp(change.fitted.deviation) - 1), std::to_string(change.rows),
                          percent(change.left.median()), percent(change.left.p90())});
  }
  if (table.rows.size() == 1) {
    return fit.worse ? "Nothing was fitted: rows held out would come no closer than they are.\n"
                     : "Nothing was fitted: these rows tell none of the coefficients.\n";
  }
  return to_text(table, colour);
}

std::string errors(const ServingFit& fit, bool colour) {
  TextTable table;
  table.rows.push_back(
      {"error of rows held out, %", "rows", "median before", "after", "p90 before", "after"});
  for (const KindErrors& kind : fit.errors)
    table.rows.push_back({to_string(kind.kind), std::to_string(kind.before.count()),
                          percent(kind.before.median()), percent(kind.after.median()),
                          percent(kind.before.p90()), percent(kind.after.p90())});
  return table.rows.size() == 1 ? "" : "\n" + to_text(table, colour);
}

using Json = nlohmann::ordered_json;

bool is_empty(const Json& value) {
  return value.is_string() ? value.get_ref<const std::string&>().empty()
                           : value.is_structured() && value.empty();
}

void print(const Json& value, std::size_t indent, std::string& out) {
  const bool flat = value.is_array() && std::none_of(value.begin(), value.end(),
                                                     [](const Json& item) { return item.is_structured(); });
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  const std::string line = flat ? " " : "\n" + std::string(indent + 2, ' ');
  out += value.is_array() ? "[" : "{";
  bool first = true;
  for (const auto& item : value.items()) {
    if (!value.is_array() && is_empty(item.value())) continue;
    if (!first) out += ",";
    if (!flat || !first) out += line;
    first = false;
    if (!value.is_array()) out += Json(item.key()).dump() + ": ";
    print(item.value(), indent + 2, out);
  }
  if (!flat && !first) out += "\n" + std::string(indent, ' ');
  out += value.is_array() ? "]" : "}";
}

}  // namespace

std::string kernel_report(const std::vector<KernelFit>& fits, bool colour) {
  TextTable table;
  table.left_columns = 2;
  table.rows.push_back(
      {"class", "table", "rows", "left out", "median error before, %", "after", "p90 before", "after"});
  std::string left;
  for (const auto& [name, source, fit, reason] : fits) {
    if (!reason.empty()) left += fmt::format("  {}: {}\n", name, reason);
    if (fit.before.rows == 0 || !reason.empty()) continue;
    table.rows.push_back({name, source, std::to_string(fit.rows), std::to_string(fit.before.rows),
                          percent(fit.before.median), percent(fit.left_out.median), percent(fit.before.p90),
                          percent(fit.left_out.p90)});
  }
  std::string out = table.rows.size() == 1 ? "No class of kernels was fitted.\n" : to_text(table, colour);
  if (!left.empty()) out += "\nLeft as they were:\n" + left;
  return out;
}

std::string fit_report(const ServingRows& rows, const ServingFit& fit, bool colour) {
  std::string out = fmt::format("{} rows of {} steps, {} loads; {} of them held out\n\n",
                                fit.rows + fit.held_out, rows.num_steps(), rows.num_loads(), fit.held_out);
  out += fitted(fit, colour);
  std::string left;
  for (const CoefficientChange& change : fit.changes)
    if (!change.fitted.told)
      left += fmt::format("  {}: {}\n", change.coefficient.name(), change.fitted.reason);
  if (!left.empty()) out += "\nLeft as they were:\n" + left;
  std::string refused;
  for (const RefusedLoad& load : rows.refused()) refused += fmt::format("  {}: {}\n", load.name, load.reason);
  if (!refused.empty()) out += "\nNot asked:\n" + refused;
  out += errors(fit, colour);
  return out;
}

std::string profile_text(const proto::HardwareProfile& profile) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;  // a constant that is missing is refused
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(profile, &json, options).ok())
    throw std::logic_error("a hardware profile cannot be written");
  Json ordered = Json::parse(json);
  // A map's order is Protobuf's whim.
  for (Json& entry : ordered["efficiencies"])
    if (entry.contains("parameters")) entry["parameters"] = Json(nlohmann::json(entry["parameters"]));
  std::string out;
  print(ordered, 0, out);
  return out + "\n";
}

}  // namespace tpsim::calibrate
