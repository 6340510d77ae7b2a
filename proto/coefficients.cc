#include "proto/coefficients.h"

#include <string>

namespace tpsim {
namespace {

template <typename Coefficients>
struct Parameter {
  std::string_view name;
  double Coefficients::*member;
};

template <typename Coefficients>
struct Table;

template <>
struct Table<PlanCoefficients> {
  using C = PlanCoefficients;
  static constexpr Parameter<C> kRows[] = {{"block_seconds", &C::block_seconds},
                                           {"block_memory", &C::block_memory},
                                           {"block_compute", &C::block_compute},
                                           {"block_compute_64", &C::block_compute_64},
                                           {"overlap", &C::overlap},
                                           {"tail", &C::tail},
                                           {"wave_tail", &C::wave_tail},
                                           {"hot_seconds", &C::hot_seconds},
                                           {"merge_row_seconds", &C::merge_row_seconds},
                                           {"merge_block_seconds", &C::merge_block_seconds},
                                           {"cached", &C::cached},
                                           {"cached_64", &C::cached_64},
                                           {"fresh_256", &C::fresh_256},
                                           {"in_order", &C::in_order},
                                           {"merge_seconds", &C::merge_seconds},
                                           {"vector_compute", &C::vector_compute},
                                           {"l2_memory", &C::l2_memory},
                                           {"head_dim_64", &C::head_dim_64},
                                           {"head_dim_192", &C::head_dim_192},
                                           {"head_dim_256", &C::head_dim_256},
                                           {"head_dim_512", &C::head_dim_512},
                                           {"fp8_kv", &C::fp8_kv},
                                           {"fp8_convert", &C::fp8_convert},
                                           {"fp8_compute", &C::fp8_compute},
                                           {"window", &C::window},
                                           {"window_64", &C::window_64},
                                           {"gather", &C::gather},
                                           {"fp8_seconds", &C::fp8_seconds},
                                           {"merge_part_seconds", &C::merge_part_seconds},
                                           {"write", &C::write},
                                           {"cast", &C::cast},
                                           {"block_width_seconds", &C::block_width_seconds},
                                           {"window_seconds", &C::window_seconds},
                                           {"head_dim_192_seconds", &C::head_dim_192_seconds},
                                           {"walk", &C::walk},
                                           {"resident", &C::resident},
                                           {"prefix", &C::prefix},
                                           {"launch_seconds", &C::launch_seconds},
                                           {"shape_seconds", &C::shape_seconds}};
};

template <>
struct Table<IndexCoefficients> {
  using C = IndexCoefficients;
  static constexpr Parameter<C> kRows[] = {{"overlap", &C::overlap},
                                           {"select_seconds", &C::select_seconds},
                                           {"select_token_seconds", &C::select_token_seconds}};
};

template <>
struct Table<OperatorCoefficients> {
  using C = OperatorCoefficients;
  static constexpr Parameter<C> kRows[] = {{"tile_seconds", &C::tile_seconds},
                                           {"k_seconds", &C::k_seconds},
                                           {"quantize", &C::quantize},
                                           {"rows", &C::rows},
                                           {"overlap", &C::overlap},
                                           {"fill", &C::fill},
                                           {"split_seconds", &C::split_seconds},
                                           {"hot_memory", &C::hot_memory},
                                           {"per_gpu_seconds", &C::per_gpu_seconds},
                                           {"shared_link", &C::shared_link},
                                           {"two_shot_seconds", &C::two_shot_seconds},
                                           {"served", &C::served},
                                           {"reach", &C::reach}};
};

template <typename Coefficients>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (const auto& parameter : Table<Coefficients>::kRows) names.push_back(parameter.name);
  return names;
}

}  // namespace

const proto::OperatorEfficiency* find_efficiency(const proto::HardwareProfile& profile,
                                                 std::string_view operator_class) {
  for (const proto::OperatorEfficiency& entry : profile.efficiencies()) {
    if (entry.operator_class() == operator_class) return &entry;
  }
  return nullptr;
}

template <typename Coefficients>
Coefficients coefficients_of(const proto::HardwareProfile& profile, std::string_view operator_class,
                             Coefficients c) {
  const proto::OperatorEfficiency* const entry = find_efficiency(profile, operator_class);
  if (entry == nullptr) return c;
  c.compute = entry->compute();
  c.memory = entry->memory();
  c.fixed_seconds = entry->fixed_seconds();
  for (const auto& [name, member] : Table<Coefficients>::kRows) {
    const auto found = entry->parameters().find(std::string(name));
    if (found != entry->parameters().end()) c.*member = found->second;
  }
  return c;
}

template <typename Coefficients>
void write_coefficients(const Coefficients& c, proto::OperatorEfficiency& out) {
  out.set_compute(c.compute);
  out.set_memory(c.memory);
  out.set_fixed_seconds(c.fixed_seconds);
  const Coefficients defaults;
  for (const auto& [name, member] : Table<Coefficients>::kRows) {
    if (c.*member != defaults.*member) (*out.mutable_parameters())[std::string(name)] = c.*member;
  }
}

std::vector<std::string_view> parameter_names(std::string_view operator_class) {
  if (operator_class.find(".indexer.") != std::string_view::npos) return names_of<IndexCoefficients>();
  if (operator_class.starts_with("attention.")) return names_of<PlanCoefficients>();
  return names_of<OperatorCoefficients>();
}

std::span<const std::string_view> feature_names(std::string_view operator_class) {
  if (operator_class.starts_with("attention.")) return kPlanFeatures;
  if (operator_class.starts_with("mla_bmm")) return kBatchedGemmFeatures;
  if (operator_class.starts_with("moe")) return kExpertFeatures;
  for (const std::string_view collective : {"all_", "reduce_scatter", "deepep."}) {
    if (operator_class.starts_with(collective)) return kCollectiveFeatures;
  }
  if (operator_class == "elementwise") return {};
  return kGemmFeatures;
}

template PlanCoefficients coefficients_of(const proto::HardwareProfile&, std::string_view, PlanCoefficients);
template IndexCoefficients coefficients_of(const proto::HardwareProfile&, std::string_view,
                                           IndexCoefficients);
template OperatorCoefficients coefficients_of(const proto::HardwareProfile&, std::string_view,
                                              OperatorCoefficients);
template void write_coefficients(const PlanCoefficients&, proto::OperatorEfficiency&);
template void write_coefficients(const IndexCoefficients&, proto::OperatorEfficiency&);
template void write_coefficients(const OperatorCoefficients&, proto::OperatorEfficiency&);

}  // namespace tpsim
