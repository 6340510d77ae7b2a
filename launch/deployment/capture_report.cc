#include "launch/deployment/capture_report.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "rank/config/shard.h"
#include "rank/llm/graph_capture.h"
#include "rank/llm/modeled_forward.h"

namespace tpsim::launch {

void write_capture_cost(const Deployment& deployment, proto::RunReport& report) {
  const std::vector<std::uint32_t>& sizes = deployment.scheduler.cuda_graph_bs;
  report.set_cuda_graphs(static_cast<std::uint32_t>(sizes.size()));
  if (sizes.empty()) return;
  const proto::HostProfile::GraphCapture& host = deployment.host.graph_capture();
  const scheduler::SpeculationConfig& speculation = deployment.speculation.config;
  if (speculation.enabled()) {
    const auto eager = deployment.make_model(/*tp_rank=*/0, /*pp_rank=*/0, /*captured=*/false);
    const rank::GraphCapture capture =
        rank::graph_capture_cost(deployment.model, sizes, *eager, host, speculation.num_draft_tokens);
    report.set_cuda_graph_capture_seconds(capture.seconds);
    report.set_cuda_graph_bytes(capture.bytes);
    return;
  }
  rank::ModeledForward::Options options;  // the warm-up passes run without graphs
  options.kv_format = deployment.attention.kv_format;
  options.host = deployment.host;
  // Pipeline stages capture at the same time.
  for (std::uint32_t stage = 0; stage < deployment.pipeline.stages.size(); ++stage) {
    const rank::ModelConfig model = deployment.pipeline.model_of_stage(deployment.model, stage);
    rank::Shard shard = rank::make_shard(model, deployment.ranks.tp_size, 0);
    shard.stage = deployment.pipeline.shard_of(model, deployment.parallel.layout, 0, stage).stage;
    rank::ModeledForward eager(model, deployment.hardware, shard, deployment.make_backend(), options);
    const rank::GraphCapture capture = rank::graph_capture_cost(model, sizes, eager, host);
    report.set_cuda_graph_capture_seconds(std::max(report.cuda_graph_capture_seconds(), capture.seconds));
    report.set_cuda_graph_bytes(std::max(report.cuda_graph_bytes(), std::uint64_t{capture.bytes}));
  }
}

}  // namespace tpsim::launch
