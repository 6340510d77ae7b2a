// One forward pass of one rank, priced operator by operator in the order the model runs them.
//
// Captured decode is padded to its bucket: matrices get the bucket's rows, and one graph launch plus a short
// gap per kernel is paid. In an eager pass the host issues one kernel after another from Python while the
// device executes behind it: the pass takes as long as the slower of the two. Prefill in captured pieces
// (PrefillGraphs) is padded like decode, and its host pays per layer. What exceeds the kernels is charged
// as launch time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "attention/backend.h"
#include "proto/hardware.pb.h"
#include "proto/host.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/cost/op_cost.h"
#include "rank/cost/pass_clock.h"
#include "rank/llm/communication.h"
#include "rank/llm/expert_load.h"
#include "rank/llm/fresh_kernels.h"
#include "rank/llm/graph_capture.h"
#include "rank/llm/layers.h"
#include "rank/llm/linear_attention_cost.h"
#include "rank/llm/mla_cost.h"
#include "rank/llm/rank_model.h"

namespace tpsim::rank {

// With --load-format dummy a DeepSeek V2's router weights are so small that the softmax over the experts,
// taken in 16 bit, is the same number for all, and the top-k of every token are the same experts
// (grouped_topk_gpu in SGLang's layers/moe/topk.py; seen on H200 servers, shared/data/serving). A router with
// a bias (gpt-oss) chooses by it alone: dummy weights are within 1e-3, those of the norm before it, too, so
// that what the products add is a thirtieth of a bias; so does one that scores by sigmoid and chooses with a
// correction bias (servers of GLM-4.5-Air and MiniMax-M2 on an H200: 64 requests take as long as one would
// with its 8 experts). Norms whose weights are stored less 1 hand a thousand times as much on, so that the
// products outweigh such a bias (Step 3.5 of 15 layers on two H200s: decodes of 1, 16 and 64 requests in 2.6,
// 7.1 and 12.5 ms). Routers that score in fp32 without a bias spread their tokens; `fp32_router`:
// DeepSeek's does (a server of 0.5.16).
bool dummy_weights_share_experts(const ModelConfig& model, bool fp32_router);

// Of the seconds of a pass, those that two-batch overlap tells apart (two_batch_overlap.h).
struct PassParts {
  double prepare = 0;                // products before attention
  double shared = 0, routed = 0;     // shared and routed experts' products
  double dispatch = 0, combine = 0;  // exchange of tokens with their experts' ranks
  double outside = 0;                // products of dense MLPs and the head
  double throttling = 0;             // what the board's power limit adds to products
  double replay = 0;                 // launch of a captured graph
  bool low_latency = false;          // which of DeepEP's kernels exchange tokens
};

class ModeledForward : public RankModel {
 public:
  struct Options {
    NumberFormat kv_format = NumberFormat::kBf16;
    std::uint32_t sparse_token_bytes = 0;      // attention_layers()
    std::vector<std::uint32_t> cuda_graph_bs;  // captured batch sizes; empty = eager
    PrefillGraphs prefill_graphs = {};
    // Experts that tokens are ever sent to; 0: all alike. Dummy weights send every token of some models to
    // the same top_k (dummy_weights_share_experts).
    std::uint32_t experts_in_use = 0;
    ExpertLoad expert_load = {};
    bool mega_moe = false;  // experts by MegaMoE, which exchanges tokens itself, where the profile has it
    LinearAttnBackends linear_attention = {};
    bool tracks_states = false;  // decode passes may take snapshots of states
    // The first layer of the next pipeline stage takes the selection of an indexer of this one.
    bool hands_selection_over = false;
    std::optional<FreshKernelRules> fresh_kernels = {};  // none: everything is compiled
    proto::HostProfile host = {};                        // whose Python issues the kernels
    bool two_batches = false;                            // halves of captured sizes are captured, too
  };
  ModeledForward(const ModelConfig& model, const proto::HardwareProfile& profile, const Shard& shard,
                 std::unique_ptr<attention::AttentionBackend> backend, Options options);

  StepCost forward(const attention::ForwardMetadata& metadata) override;
  // Of the pass priced last.
  const PassParts& parts() const { return parts_; }
  void save(StateWriter& state) const override;
  void load(StateReader& state) override;
  // As AttentionBackend::cascades().
  bool cascades() const { return backend_->cascades(); }

 private:
  // Everything but attention: depends on the numbers of rows only.
  struct Dense {
    double gemm = 0, collective = 0, other = 0;
    double receive = 0, send = 0;  // pipeline stages
    double flops = 0, bytes = 0, communicated = 0, network = 0, network_seconds = 0;
    double launches = 0;
    double issued = 0;     // kernels, with those whose bytes are counted with a neighbour's
    double host = 0;       // seconds of an eager pass's host beside launches
    double in_place = 0;   // all-reduces of the layers
    double products = 0;   // seconds of the matrix products whose sustained rate is known …
    double sustained = 0;  // … and what they take at that rate
    PassParts parts = {};
  };
  std::uint32_t prefill_bucket(const attention::ForwardMetadata& metadata, std::uint32_t tokens) const;
  // The gated delta-net layers, projections not included.
  attention::KernelCost linear_attention(const attention::ForwardMetadata& metadata, std::uint32_t rows);
  // What the board's power limit adds to the products of a pass.
  double throttling(const Dense& dense) const;
  // What an MLA pass makes of kv_b_proj.
  enum class Latent : std::uint8_t {
    kExpanded,        // multiplies with it; all other models, too
    kAbsorbed,        // batched products take its place
    kAbsorbedJoined,  // and MlaRule::joins
  };
  // Which pass everything but attention is priced for.
  struct DenseKey {
    PassRows rows;
    Latent latent = Latent::kExpanded;
    friend bool operator==(const DenseKey&, const DenseKey&) = default;
  };
  struct HashKey {
    std::size_t operator()(const DenseKey& key) const;
  };
  const Dense& dense(const PassRows& rows, Latent latent);
  Dense price_dense(const PassRows& rows, Latent latent) const;
  // An MLA layer that expands what the extend planned last sees.
  attention::KernelCost expansion(const attention::MlaExtend& extend,
                                  const attention::ForwardMetadata& metadata, std::uint32_t rows) const;
  // An eager pass, or one whose pieces are captured: all of it, the device's part alone and the host's that
  // issues its kernels (0 where it waits for them in between).
  struct Uncaptured {
    double seconds = 0, device = 0, issue = 0;
  };
  // `attention` and `attention_launches` of the pass are the attention layers'.
  Uncaptured uncaptured(const StepCost& step, const Dense& dense, const attention::KernelCost& plan,
                        double attention_launches, bool pieces) const;

  ModelConfig model_;
  Shard shard_;
  proto::HardwareProfile profile_;
  OperatorCosts costs_;
  std::optional<MlaCosts> mla_costs_;  // MLA models
  std::unique_ptr<attention::AttentionBackend> backend_;
  const std::vector<AttentionLayers> attention_layers_;
  const LinearLayers linear_layers_;
  const GatedDeltaCosts gated_delta_;
  const std::vector<WeightSpec> weights_;
  const PassClock clock_;
  double piecewise_layer_;
  // Matrix products under the board's power limit, of 16 bit and fp8; where it was measured.
  std::optional<OperatorCoefficients> power_, power_fp8_;
  PrefillGraphs prefill_graphs_;
  std::uint32_t experts_in_use_ = 0;
  ExpertLoad expert_load_;
  bool mega_moe_ = false;
  bool tracks_states_ = false;
  bool hands_selection_over_ = false;
  bool small_kernels_overlap_;
  bool second_stream_;
  proto::HostProfile host_;
  std::optional<FreshKernels> fresh_kernels_;
  std::vector<std::uint32_t> linear_lens_;
  PassParts parts_;
  std::unordered_map<DenseKey, Dense, HashKey> dense_;
};

}  // namespace tpsim::rank
