#include "proto/coefficients.h"

#include <nlohmann/json.hpp>
#include <string>

namespace tpsim {

// The parameters by name: all members but the three that OperatorEfficiency has fields for.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlanCoefficients, block_seconds, block_memory, block_compute,
                                   block_compute_64, overlap, tail, wave_tail, hot_seconds, merge_row_seconds,
                                   merge_block_seconds, cached, cached_64, fresh_256, in_order, merge_seconds,
                                   vector_compute, l2_memory, head_dim_64, head_dim_192, head_dim_256,
                                   head_dim_512, fp8_kv, fp8_convert, fp8_compute, window, window_64, gather,
                                   fp8_seconds, merge_part_seconds, write, cast, block_width_seconds,
                                   window_seconds, head_dim_192_seconds, walk, resident, prefix,
                                   launch_seconds, shape_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(IndexCoefficients, overlap, select_seconds, select_token_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OperatorCoefficients, tile_seconds, k_seconds, quantize, rows, overlap,
                                   fill, split_seconds, hot_memory, per_gpu_seconds, shared_link,
                                   two_shot_seconds, served, reach)

namespace {

template <typename Coefficients>
const nlohmann::json& defaults() {
  static const nlohmann::json kDefaults = Coefficients{};
  return kDefaults;
}

template <typename Coefficients>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (auto at = defaults<Coefficients>().begin(); at != defaults<Coefficients>().end(); ++at)
    names.push_back(at.key());
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
  nlohmann::json parameters = c;
  for (const auto& [name, value] : entry->parameters()) parameters[name] = value;
  from_json(parameters, c);
  return c;
}

template <typename Coefficients>
void write_coefficients(const Coefficients& c, proto::OperatorEfficiency& out) {
  out.set_compute(c.compute);
  out.set_memory(c.memory);
  out.set_fixed_seconds(c.fixed_seconds);
  const nlohmann::json parameters = c;
  for (const auto& [name, value] : parameters.items()) {
    if (value != defaults<Coefficients>()[name]) (*out.mutable_parameters())[name] = value;
  }
}

std::vector<std::string_view> parameter_names(std::string_view operator_class) {
  if (operator_class.find(".indexer") != std::string_view::npos) return names_of<IndexCoefficients>();
  if (operator_class.starts_with("attention.")) return names_of<PlanCoefficients>();
  return names_of<OperatorCoefficients>();
}

std::span<const std::string_view> feature_names(std::string_view operator_class) {
  if (operator_class.starts_with("attention.")) return kPlanFeatures;
  if (operator_class.starts_with("mla_bmm")) return kBatchedGemmFeatures;
  if (operator_class.starts_with("moe")) return kExpertFeatures;
  if (operator_class.starts_with("gdn.") || operator_class.starts_with("kda.")) return kDeltaFeatures;
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
