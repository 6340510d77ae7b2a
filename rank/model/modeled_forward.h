// One forward pass of one rank, priced operator by operator in the order the model runs them.
//
// Captured decode is padded to its bucket: matrices get the bucket's rows, and one graph launch plus a short
// gap per kernel is paid. In an eager pass the host issues one kernel after another from Python while the
// device executes behind it: the pass takes as long as the slower of the two. Prefill in captured pieces
// (prefill_graphs.h) is padded like decode, and its host pays per layer. What exceeds the kernels is charged
// as launch time.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "attention/backend.h"
#include "proto/hardware.pb.h"
#include "rank/model/communication.h"
#include "rank/model/expert_load.h"
#include "rank/model/layers.h"
#include "rank/model/linear_attention_cost.h"
#include "rank/model/model_config.h"
#include "rank/model/op_cost.h"
#include "rank/model/prefill_graphs.h"
#include "rank/model/rank_model.h"
#include "rank/model/shard.h"

namespace tpsim::rank {

class ModeledForward : public RankModel {
 public:
  struct Options {
    NumberFormat kv_format = NumberFormat::kBf16;
    std::uint32_t sparse_token_bytes = 0;      // attention_layers()
    std::vector<std::uint32_t> cuda_graph_bs;  // captured batch sizes; empty = eager
    PrefillGraphs prefill_graphs = {};
    ExpertLoad expert_load = {};
  };
  ModeledForward(const ModelConfig& model, const proto::HardwareProfile& profile, const Shard& shard,
                 std::unique_ptr<attention::AttentionBackend> backend, Options options);

  StepCost forward(const attention::ForwardMetadata& metadata) override;

 private:
  // Everything but attention: depends on the numbers of rows only.
  struct Dense {
    double gemm = 0, collective = 0, other = 0;
    double flops = 0, bytes = 0, communicated = 0;
    double launches = 0;
    double issued = 0;  // kernels that the host of an eager pass issues
  };
  struct HashRows {
    std::size_t operator()(const PassRows& rows) const;
  };
  const Dense& dense(const PassRows& rows);
  Dense price_dense(const PassRows& rows) const;
  std::uint32_t prefill_bucket(const attention::ForwardMetadata& metadata, std::uint32_t tokens) const;
  // The gated delta-net layers, projections not included.
  attention::KernelCost linear_attention(const attention::ForwardMetadata& metadata, std::uint32_t rows);
  // Seconds of an eager pass, or of one whose pieces are captured, of which `attention` and
  // `attention_launches` are the attention layers'.
  double uncaptured_seconds(const StepCost& step, const Dense& dense, const attention::KernelCost& plan,
                            double attention_launches, bool pieces) const;

  ModelConfig model_;
  Shard shard_;
  OperatorCosts costs_;
  std::unique_ptr<attention::AttentionBackend> backend_;
  const std::vector<AttentionLayers> attention_layers_;
  const LinearLayers linear_layers_;
  const GatedDeltaCosts gated_delta_;
  const std::vector<WeightSpec> weights_;
  double kernel_launch_, piecewise_layer_, graph_replay_, graph_gap_;
  PrefillGraphs prefill_graphs_;
  ExpertLoad expert_load_;
  std::vector<std::uint32_t> linear_lens_;
  std::unordered_map<PassRows, Dense, HashRows> dense_;
};

}  // namespace tpsim::rank
