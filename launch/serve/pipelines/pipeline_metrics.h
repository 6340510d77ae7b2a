// GET /metrics of a pipeline's server: the metrics of SGLang 0.5.23's diffusion scheduler
// (runtime/observability/metrics.py of sglang.multimodal_gen), with its names, help texts, labels and
// buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/diffusion/request_queue.h"
#include "launch/serve/live_statistics.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

class PipelineMetrics {
 public:
  explicit PipelineMetrics(std::uint32_t replicas) : replicas_(replicas) {}

  // A batch began; `stop_reason`: why no other request went along.
  void on_batch(const ServedRequest& head, const char* stop_reason, const rank::GenerationCost& cost);
  void on_finished(const ServedRequest& served);
  std::string text(const RequestQueue& queue, double speedup) const;

 private:
  static constexpr double kSeconds[] = {0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200};
  static constexpr double kStageSeconds[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1,   2,
                                             5,     10,    30,   60,   120, 300, 1200};
  static constexpr double kSizes[] = {1, 2, 4, 8, 16, 32, 64};

  struct Replica {
    std::uint64_t finished = 0;
    LiveHistogram latency{kSeconds}, queue_time{kSeconds};
    std::map<std::string, LiveHistogram> batch_size;  // by why no more went along
    std::map<std::string, LiveHistogram> stages;      // by name
  };
  std::vector<Replica> replicas_;
};

}  // namespace tpsim::launch
