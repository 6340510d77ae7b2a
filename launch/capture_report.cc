#include "launch/capture_report.h"

#include <cstdint>
#include <vector>

#include "rank/model/graph_capture.h"
#include "rank/model/modeled_forward.h"
#include "rank/model/shard.h"

namespace tpsim::launch {

void write_capture_cost(const Deployment& deployment, proto::RunReport& report) {
  const std::vector<std::uint32_t>& sizes = deployment.scheduler.cuda_graph_bs;
  report.set_cuda_graphs(static_cast<std::uint32_t>(sizes.size()));
  if (sizes.empty()) return;
  const scheduler::SpeculationConfig& speculation = deployment.speculation.config;
  if (speculation.enabled()) {
    const auto eager =
        deployment.make_model(rank::make_shard(deployment.model, deployment.layout, 0), /*captured=*/false);
    const rank::GraphCapture capture =
        rank::graph_capture_cost(deployment.model, sizes, *eager, speculation.num_draft_tokens);
    report.set_cuda_graph_capture_seconds(capture.seconds);
    report.set_cuda_graph_bytes(capture.bytes);
    return;
  }
  rank::ModeledForward::Options options;  // the warm-up passes run without graphs
  options.kv_format = deployment.kv_format;
  rank::ModeledForward eager(deployment.model, deployment.hardware,
                             rank::make_shard(deployment.model, deployment.ranks.tp_size, 0),
                             deployment.make_backend(), options);
  const rank::GraphCapture capture = rank::graph_capture_cost(deployment.model, sizes, eager);
  report.set_cuda_graph_capture_seconds(capture.seconds);
  report.set_cuda_graph_bytes(capture.bytes);
}

}  // namespace tpsim::launch
