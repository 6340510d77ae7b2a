// One forward pass of one rank, priced operator by operator in the order the model runs them.
//
// Captured decode is padded to its bucket: matrices get the bucket's rows, and one graph launch plus a short
// gap per kernel is paid. An eager pass launches every kernel from the host: it takes as long as the slower
// of the host's launches and the device with its gaps, and what exceeds the kernels is charged as launch
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "attention/backend.h"
#include "proto/hardware.pb.h"
#include "rank/model/model_config.h"
#include "rank/model/op_cost.h"
#include "rank/model/shard.h"
#include "rank/parallel/rank_model.h"

namespace tpsim::rank {

class ModeledForward : public RankModel {
 public:
  struct Options {
    std::uint32_t kv_element_bytes = 2;
    std::vector<std::uint32_t> cuda_graph_bs;  // captured batch sizes; empty = eager
  };
  ModeledForward(const ModelConfig& model, const proto::HardwareProfile& profile, const Shard& shard,
                 std::unique_ptr<attention::AttentionBackend> backend, Options options);

  StepCost forward(const attention::ForwardMetadata& metadata) override;

 private:
  // Everything but attention: depends on the number of token rows and of sampled rows only.
  struct Dense {
    double gemm = 0, collective = 0, other = 0;
    double flops = 0, bytes = 0, communicated = 0;
    double launches = 0;
  };
  const Dense& dense(std::uint32_t rows, std::uint32_t sampled);
  Dense price_dense(std::uint32_t rows, std::uint32_t sampled) const;

  ModelConfig model_;
  Shard shard_;
  OperatorCosts costs_;
  std::unique_ptr<attention::AttentionBackend> backend_;
  std::vector<attention::LayerShape> kinds_;  // one per model_.attention entry
  double kernel_launch_, graph_replay_, graph_gap_;
  std::unordered_map<std::uint64_t, Dense> dense_;
};

}  // namespace tpsim::rank
