#include "launch/simulation/run_traits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "rank/llm/layers.h"

namespace tpsim::launch {
namespace {

std::string_view family_of(const rank::ModelConfig& model) {
  if (model.is_sparse()) return "sparse";
  if (model.is_hybrid_linear()) return "hybrid";
  if (model.is_mla()) return "mla";
  return model.moe.num_experts > 0 ? "moe" : "dense";
}

std::string_view name_of(const rank::WeightFormat& format) {
  using Kind = rank::WeightFormat::Kind;
  switch (format.kind) {
    case Kind::k16Bit:
      return "16bit";
    case Kind::kFp8:
      return format.block_k > 0 ? "fp8_block" : "fp8";
    case Kind::kInt8:
      return "int8";
    case Kind::kInt4:
      return "int4";
    case Kind::kMxfp4:
      return "mxfp4";
    case Kind::kNvfp4:
      return "nvfp4";
  }
  return "";
}

// Of the format in which most weights' elements are.
std::string_view weights_of(const Deployment& deployment) {
  std::vector<std::pair<std::string_view, std::uint64_t>> elements;
  for (const rank::WeightSpec& weight : rank::weight_list(
           deployment.model, rank::make_shard(deployment.model, deployment.parallel.layout, 0))) {
    if (weight.role != rank::WeightRole::kLinear && weight.role != rank::WeightRole::kExperts) continue;
    const std::string_view name = name_of(weight.format);
    auto known = std::find_if(elements.begin(), elements.end(),
                              [name](const auto& entry) { return entry.first == name; });
    if (known == elements.end()) known = elements.insert(elements.end(), {name, 0});
    known->second += weight.k * weight.n * weight.copies();
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "" : most->first;
}

std::string_view arrivals_of(const ServerArgs& args, const scheduler::WorkloadOutline& workload) {
  if (args.max_concurrency) return "closed";
  if (args.request_rate) return std::isinf(*args.request_rate) ? "burst" : "open";
  return workload.last_arrival > 0 ? "open" : "burst";
}

// Flags that pace steps whatever the kernels are, with a space before each.
std::string paced_by(const Deployment& deployment) {
  std::string flags;
  if (deployment.parallel.layout.dp_size > 1) flags += " --enable-dp-attention";
  if (deployment.scheduler.pipeline.staged()) flags += " --pp-size";
  // Drafting has an overlap of its own, or none.
  if (deployment.scheduler.disable_overlap_schedule && deployment.speculation.algorithm.empty())
    flags += " --disable-overlap-schedule";
  if (deployment.scheduler.cuda_graph_bs.empty()) flags += " --disable-cuda-graph";  // said, or the backend's
  if (deployment.scheduler.enable_mixed_chunk) flags += " --enable-mixed-chunk";
  return flags;
}

}  // namespace

proto::LoadTraits traits_of(const ServerArgs& args, const Deployment& deployment,
                            const scheduler::WorkloadOutline& workload, const proto::RunReport& report) {
  proto::LoadTraits traits;
  traits.set_hardware(report.hardware());
  traits.set_model(report.model());
  traits.set_family(std::string(family_of(deployment.model)));
  traits.set_weights(std::string(weights_of(deployment)));
  traits.set_backend(report.backend() + paced_by(deployment));
  traits.set_gpus(deployment.ranks.num_ranks());
  traits.set_speculation(deployment.speculation.algorithm);
  traits.set_arrivals(std::string(arrivals_of(args, workload)));
  const double requests = std::max<double>(1, static_cast<double>(report.completed()));
  traits.set_in_flight(report.concurrency());
  traits.set_input_tokens(static_cast<double>(report.total_input_tokens()) / requests);
  traits.set_output_tokens(static_cast<double>(report.total_output_tokens()) / requests);
  return traits;
}

std::string carried_over(const proto::RunReport& report) {
  constexpr std::array<std::string_view, 6> kHeavy = {"attention.", "gemm",    "moe",
                                                      "all_reduce", "mla_bmm", "gated_delta"};
  constexpr double kMuch = 0.1;
  std::vector<std::string_view> unmeasured;
  for (const proto::Calibration& row : report.calibration()) {
    if (row.status() == "calibrated" || row.operator_class() == "attention.metadata") continue;
    if (std::any_of(kHeavy.begin(), kHeavy.end(),
                    [&row](std::string_view name) { return row.operator_class().starts_with(name); }))
      unmeasured.push_back(row.operator_class());
  }
  std::vector<std::string> why;
  if (!unmeasured.empty())
    why.push_back(fmt::format("{} {} not measured on this GPU", fmt::join(unmeasured, ", "),
                              unmeasured.size() == 1 ? "was" : "were"));
  const auto furthest =
      std::max_element(report.extrapolations().begin(), report.extrapolations().end(),
                       [](const auto& a, const auto& b) { return a.time_share() < b.time_share(); });
  if (furthest != report.extrapolations().end() && furthest->time_share() > kMuch)
    why.push_back(fmt::format("{:.0f} % of the time is beyond the {} measured", 100 * furthest->time_share(),
                              furthest->shape()));
  return fmt::format("{}", fmt::join(why, "; "));
}

}  // namespace tpsim::launch
