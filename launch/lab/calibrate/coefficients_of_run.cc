#include "launch/lab/calibrate/coefficients_of_run.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "proto/coefficients.h"
#include "rank/cost/op_cost.h"

namespace tpsim::calibrate {
namespace {

constexpr double kShareWidth = 0.3;
constexpr double kFixedWidth = 0.5;  // of a kernel's fixed time
constexpr double kHostWidth = 0.7;
constexpr double kFurthest = 1.5;  // logarithm of a factor: beyond 4.5 it is no matter of calibration

// A number of a profile, or of a class's entry.
template <typename Message>
const google::protobuf::FieldDescriptor* number_field(const std::string& name) {
  const auto* const field = Message::descriptor()->FindFieldByName(name);
  return field != nullptr && field->cpp_type() == field->CPPTYPE_DOUBLE && !field->is_repeated() ? field
                                                                                                 : nullptr;
}

bool is_attention(std::string_view name) { return name.starts_with("attention."); }

// The entry of `profile`, or one of the formula's defaults; nothing where another class stands in.
std::optional<proto::OperatorEfficiency> entry_of(const proto::HardwareProfile& profile,
                                                  const std::string& name) {
  if (const auto* const entry = find_efficiency(profile, name)) return *entry;
  proto::OperatorEfficiency entry;
  entry.set_operator_class(name);
  if (is_attention(name)) {
    const bool stands_alone = name.find(".mla_") == std::string::npos && !name.starts_with("attention.nsa.");
    if (!stands_alone) return std::nullopt;
    write_coefficients(PlanCoefficients{}, entry);
    return entry;
  }
  const auto known = rank::operator_classes();
  if (std::find(known.begin(), known.end(), name) == known.end()) return std::nullopt;
  write_coefficients(rank::operator_coefficients(profile, name), entry);
  return entry;
}

std::vector<Coefficient> of_class(const std::string& name) {
  const auto with = [&name](const char* field, double width) { return Coefficient{name, field, width}; };
  if (is_attention(name)) {
    constexpr std::string_view kLaunch = ".launch_seconds";
    if (name.ends_with(kLaunch))
      return {{name.substr(0, name.size() - kLaunch.size()), std::string(kLaunch.substr(1)), kHostWidth}};
    if (name.ends_with("_seconds")) return {};  // of single steps, which rows do not tell apart
    if (name.ends_with("decode")) return {with("memory", kShareWidth)};
    return {with("compute", kShareWidth)};
  }
  if (name.starts_with("gemm") || name.starts_with("moe"))
    return {with("memory", kShareWidth), with("compute", kShareWidth)};
  if (name.starts_with("mla_bmm")) return {with("memory", kShareWidth)};
  if (name == "elementwise" || name.starts_with("all_") || name == "reduce_scatter")
    return {with("fixed_seconds", kFixedWidth), with("memory", kShareWidth)};
  return {};
}

// The least and the greatest value that a profile may have.
std::pair<double, double> range_of(const Coefficient& coefficient) {
  const bool seconds = coefficient.field.ends_with("seconds");
  return seconds ? std::pair(1e-9, 1.0) : std::pair(1e-3, 1.0);
}

}  // namespace

std::vector<Coefficient> coefficients_of_run(const proto::RunReport& header) {
  constexpr std::array<std::string_view, 5> kHost = {"kernel_launch_seconds", "piecewise_layer_seconds",
                                                     "graph_replay_seconds", "graph_kernel_gap_seconds",
                                                     "scheduler_step_seconds"};
  std::vector<Coefficient> out;
  const auto add = [&out](Coefficient coefficient) {
    if (std::find(out.begin(), out.end(), coefficient) == out.end()) out.push_back(std::move(coefficient));
  };
  for (const proto::Calibration& row : header.calibration()) {
    const std::string& name = row.operator_class();
    if (std::find(kHost.begin(), kHost.end(), name) != kHost.end()) {
      add({"", name, kHostWidth});
    } else {
      for (Coefficient& coefficient : of_class(name)) add(std::move(coefficient));
    }
  }
  return out;
}

std::optional<double> value_of(const proto::HardwareProfile& profile, const Coefficient& coefficient) {
  if (coefficient.operator_class.empty()) {
    const auto* const field = number_field<proto::HardwareProfile>(coefficient.field);
    return field == nullptr ? std::nullopt
                            : std::optional(profile.GetReflection()->GetDouble(profile, field));
  }
  const auto entry = entry_of(profile, coefficient.operator_class);
  if (!entry) return std::nullopt;
  if (const auto* const field = number_field<proto::OperatorEfficiency>(coefficient.field))
    return entry->GetReflection()->GetDouble(*entry, field);
  const auto found = entry->parameters().find(coefficient.field);
  return found == entry->parameters().end() ? std::nullopt : std::optional(found->second);
}

void set_value(const Coefficient& coefficient, double value, proto::HardwareProfile& profile) {
  if (coefficient.operator_class.empty()) {
    profile.GetReflection()->SetDouble(&profile, number_field<proto::HardwareProfile>(coefficient.field),
                                       value);
    return;
  }
  auto& entries = *profile.mutable_efficiencies();
  auto entry = std::find_if(entries.begin(), entries.end(), [&](const proto::OperatorEfficiency& of) {
    return of.operator_class() == coefficient.operator_class;
  });
  if (entry == entries.end()) {
    *entries.Add() = *entry_of(profile, coefficient.operator_class);
    entry = std::prev(entries.end());
  }
  if (const auto* const field = number_field<proto::OperatorEfficiency>(coefficient.field)) {
    entry->GetReflection()->SetDouble(&*entry, field, value);
  } else {
    (*entry->mutable_parameters())[coefficient.field] = value;
  }
}

bool is_host_constant(const Coefficient& coefficient) {
  return coefficient.operator_class.empty() || coefficient.field == "launch_seconds";
}

std::vector<Unknown> unknowns_of(const std::vector<Coefficient>& coefficients,
                                 const proto::HardwareProfile& profile) {
  std::vector<Unknown> unknowns;
  for (const Coefficient& coefficient : coefficients) {
    const double value = value_of(profile, coefficient).value();
    const auto [least, most] = range_of(coefficient);
    unknowns.push_back({coefficient.name(), coefficient.width,
                        std::clamp(std::log(least / value), -kFurthest, 0.0),
                        std::clamp(std::log(most / value), 0.0, kFurthest)});
  }
  return unknowns;
}

proto::HardwareProfile with_factors(const proto::HardwareProfile& profile,
                                    const std::vector<Coefficient>& coefficients,
                                    const std::vector<double>& logarithms) {
  proto::HardwareProfile out = profile;
  for (std::size_t c = 0; c < coefficients.size(); ++c) {
    if (logarithms[c] == 0) continue;
    const auto [least, most] = range_of(coefficients[c]);
    const double value = value_of(profile, coefficients[c]).value() * std::exp(logarithms[c]);
    set_value(coefficients[c], std::clamp(value, least, most), out);
  }
  return out;
}

}  // namespace tpsim::calibrate
