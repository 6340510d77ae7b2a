// What stands behind the prices of a run: one row for each operator class and each host constant that enters
// them, with the table that it was fitted on, or `uncalibrated`.
#pragma once

#include <cstdint>
#include <string>

#include "attention/sparse_kernels.h"
#include "launch/flags/server_args.h"
#include "proto/base/number_format.h"
#include "proto/hardware.pb.h"
#include "proto/host.pb.h"
#include "proto/report.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/parallel_layout.h"
#include "rank/llm/linear_attention_cost.h"

namespace tpsim::launch {

// Which prices a deployment meets.
struct PricedRun {
  const rank::ModelConfig& model;
  const proto::HardwareProfile& hardware;
  const proto::HostProfile& host;
  const BackendPair& backends;
  const rank::ParallelLayout& layout;
  bool pipeline = false;                 // stages hand over to each other
  attention::SparseKernels sparse = {};  // models with sparse attention only
  NumberFormat kv_format = NumberFormat::kBf16;
  bool decode_graphs = false;        // some decode replays a captured graph
  bool prefill_pieces = false;       // some prefill runs in captured pieces
  std::string speculation = {};      // algorithm; empty: none
  std::uint32_t experts_in_use = 0;  // Weights::experts_in_use
  rank::LinearAttnBackends linear_attention = {};
  double launch_queue = 0;    // scheduler::SchedulerConfig
  bool queue_stated = false;  // by --launch-queue
};
void write_calibration(const PricedRun& run, proto::RunReport& report);

}  // namespace tpsim::launch
