// GET /metrics: what a live server has done, in Prometheus' text format (version 0.0.4), with the names, help
// texts, labels and buckets of SGLang 0.5.12 (observability/metrics_collector.py, utils/common.py,
// mem_cache/base_prefix_cache.py), so that dashboards and autoscalers of SGLang read it.
//
// Seconds are those of the simulated clock, which runs `tpsim:speedup` times as fast as the wall. A metric of
// something that a simulation does not do (grammars, LoRA, disaggregation …) is not printed, except where
// SGLang prints a zero too. What SGLang has no name for begins with "tpsim:".
#pragma once

#include <string>

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

inline constexpr const char* kPrometheusContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string prometheus_text(const LiveStatistics& statistics);

}  // namespace tpsim::launch
