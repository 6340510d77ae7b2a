#include "launch/simulation/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launch/deployment/images.h"
#include "launch/deployment/speculation.h"
#include "launch/error_bands/error_band.h"
#include "launch/error_bands/residuals.h"
#include "rank/llm/layers.h"

namespace tpsim::launch {
namespace {

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
  const auto& decodes =
      deployment.disaggregation.decode_side ? *deployment.disaggregation.decode_side : deployment;
  if (decodes.scheduler.cuda_graph_bs.empty()) flags += " --disable-cuda-graph";  // said, or the backend's
  if (deployment.scheduler.enable_mixed_chunk) flags += " --enable-mixed-chunk";
  return flags;
}

// Tables time the kernel that their authors chose, servers run the one that SGLang chooses: what was fitted
// to tables is calibrated for a family on a GPU once a server of it was met there.
void judge_kernels(proto::RunReport& report) {
  for (proto::Calibration& row : *report.mutable_calibration())
    if (row.status() == "calibrated" && is_heavy(row) && !row.operator_class().ends_with("_seconds"))
      row.set_status("kernels");  // the host's own seconds are the same for every model
}

}  // namespace

void add_window_bytes(std::span<const Deployment* const> replicas, const proto::RunReport& scheduled,
                      std::span<proto::RankReport> ranks) {
  if (scheduled.swa_pool_tokens() == 0 || ranks.empty()) return;
  std::size_t rank = 0;
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    const std::uint64_t pool = scheduled.replicas().empty()
                                   ? scheduled.swa_pool_tokens()
                                   : scheduled.replicas(static_cast<int>(replica)).swa_pool_tokens();
    const double windows = scheduled.peak_swa_usage() * static_cast<double>(pool);
    const Deployment& of = *replicas[replica];
    for (std::uint32_t i = 0; i < of.ranks.num_ranks(); ++i) {
      proto::RankReport& report = ranks[rank++];
      const std::uint64_t bytes =
          of.memory.stages.at(report.rank() / of.ranks.tp_size).window_bytes_per_token;
      report.set_peak_kv_bytes(report.peak_kv_bytes() +
                               static_cast<std::uint64_t>(windows * static_cast<double>(bytes)));
    }
  }
}

bool is_heavy(const proto::Calibration& row) {
  constexpr std::array<std::string_view, 8> kHeavy = {"attention.", "gemm", "moe",  "all_reduce",
                                                      "mla_bmm",    "gdn.", "kda.", "gated_delta"};
  const std::string& name = row.operator_class();
  return name != "attention.metadata" &&
         std::any_of(kHeavy.begin(), kHeavy.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

std::string carried_over(const proto::RunReport& report) {
  constexpr double kMuch = 0.1;
  std::vector<std::string_view> unmeasured;
  for (const proto::Calibration& row : report.calibration())
    if (row.status() == "uncalibrated" && is_heavy(row)) unmeasured.push_back(row.operator_class());
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

std::string family_of(const rank::ModelConfig& model) {
  std::string_view name = model.architecture;
  for (const std::string_view end : {"ForCausalLM", "ForConditionalGeneration"})
    if (name.ends_with(end)) name.remove_suffix(end.size());
  return std::string(name);
}

proto::LoadTraits traits_of(const ServerArgs& args, const Deployment& deployment,
                            const scheduler::WorkloadOutline& workload, const proto::RunReport& report) {
  proto::LoadTraits traits;
  traits.set_hardware(report.hardware());
  traits.set_model(report.model());
  traits.set_family(family_of(deployment.model));
  traits.set_weights(std::string(weights_of(deployment)));
  traits.set_backend(report.backend() + paced_by(deployment));
  traits.set_gpus(deployment.ranks.num_ranks());  // of one replica, as its load is
  traits.set_speculation(deployment.speculation.algorithm);
  traits.set_arrivals(std::string(arrivals_of(args, workload)));
  const double requests = std::max<double>(1, static_cast<double>(report.completed()));
  traits.set_in_flight(report.concurrency() / deployment.replicas());
  traits.set_input_tokens(static_cast<double>(report.total_input_tokens()) / requests);
  traits.set_output_tokens(static_cast<double>(report.total_output_tokens()) / requests);
  return traits;
}

double gpu_hour_cost(const OutputArgs& args, const proto::HardwareProfile& hardware) {
  return args.gpu_hour_costs.empty() ? hardware.gpu_hour_cost() : args.gpu_hour_costs.front();
}

void add_cost(double gpu_hour, proto::RunReport& report) {
  if (gpu_hour <= 0) return;
  double seconds = report.duration();
  if (const double gpus = report.ranks_size(); report.has_elasticity() && gpus > 0)
    seconds = report.elasticity().gpu_seconds() / gpus;
  const double cost = gpu_hour * seconds / 3600;
  report.set_cost(cost);
  const auto tokens = static_cast<double>(report.total_input_tokens() + report.total_output_tokens());
  if (tokens > 0) report.set_cost_per_million_tokens(cost / tokens * 1e6);
  if (report.completed() > 0)
    report.set_cost_per_thousand_requests(cost / static_cast<double>(report.completed()) * 1e3);
}

proto::RunReport compose_report(const ServerArgs& args, const Deployment& deployment,
                                const scheduler::WorkloadOutline& workload, const proto::RunReport& scheduled,
                                std::vector<proto::RankReport> ranks, const Reach& reach) {
  proto::RunReport report = deployment.header;
  report.set_trace(workload.name);
  report.MergeFrom(scheduled);
  if (workload.lengths_only && report.cache_hit_rate() == 0) report.set_hit_rate_unknown(true);
  deployment.describe_stages(report);
  for (proto::RankReport& rank : ranks) {
    rank.set_rank(static_cast<std::uint32_t>(report.ranks_size()));
    *report.add_ranks() = std::move(rank);
  }
  finish_image_report(deployment.parallel.layout.dp_size * deployment.replicas(), report);
  write_speculation_shares(report);
  if (args.numeric()) return report;
  double gpu_hour = report.ranks_size() * gpu_hour_cost(args, deployment.hardware);
  if (const auto& decode = deployment.disaggregation.decode_side) {
    const std::uint32_t gpus = deployment.disaggregation.decode * decode->ranks.num_ranks();
    gpu_hour += gpus * (gpu_hour_cost(args, decode->hardware) - gpu_hour_cost(args, deployment.hardware));
  }
  add_cost(gpu_hour, report);
  for (proto::Extrapolation& beyond : reach.extrapolations(deployment.header))
    *report.add_extrapolations() = std::move(beyond);
  const proto::LoadTraits traits = traits_of(args, deployment, workload, report);
  if (met(catalogue_residuals(), traits.hardware(), traits.family()).loads == 0) {
    report.set_no_server(fmt::format("no server of this family on this GPU was measured: {} on {}",
                                     traits.family(), traits.hardware()));
    judge_kernels(report);
  }
  if (const std::uint32_t nodes = deployment.parallel.layout.nodes; nodes > 1) {
    const std::string others = report.has_no_server() ? report.no_server() + "; " : "";
    report.set_no_server(fmt::format("{}no server over several nodes was measured: {} nodes of {}", others,
                                     nodes, traits.hardware()));
  }
  if (report.stopped_early()) return report;
  std::optional<proto::ErrorBands> bands =
      error_bands(catalogue_residuals(), traits, carried_over(report), report);
  if (bands) *report.mutable_error_bands() = std::move(*bands);
  return report;
}

void add_speedup(const proto::RunReport& plain, proto::RunReport& report) {
  proto::Speculation& out = *report.mutable_speculation();
  if (report.median_tpot_ms() > 0) out.set_tpot_speedup(plain.median_tpot_ms() / report.median_tpot_ms());
  if (report.duration() > 0) out.set_duration_speedup(plain.duration() / report.duration());
}

void add_goodput(GoodputRate found, proto::RunReport& report) {
  if (found.rate) report.set_max_goodput_rate(*found.rate);
  *report.mutable_max_goodput_search() = std::move(found.search);
}

}  // namespace tpsim::launch
