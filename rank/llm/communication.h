// What one rank sends and waits for in a pass, and how many tokens each part of a layer sees: SGLang 0.5's
// layers/communicator.py (LayerScatterModes), layers/dp_attention.py (DpPaddingMode, dp_gather, dp_scatter),
// layers/logits_processor.py and layers/moe/token_dispatcher/deepep.py.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/backend.h"
#include "proto/host.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/layers.h"

namespace tpsim::rank {

// Token rows of one pass on one rank, padding included.
struct PassRows {
  std::uint32_t attention = 0;  // of this rank's data-parallel rank
  std::uint32_t sampled = 0;    // of them, whose next token is sampled
  std::uint32_t gathered = 0;   // of all data-parallel ranks together
  std::uint32_t head = 0;       // whose logits are computed: of this data-parallel rank, or of all
  std::uint32_t routed = 0;     // that visit experts, on all ranks together
  bool max_len = false;         // DpPaddingMode::MAX_LEN: all-gather and reduce-scatter, not all-reduce
  bool captured = false;        // a graph of the whole pass is replayed
  bool extends = false;         // some data-parallel rank extends

  friend bool operator==(const PassRows&, const PassRows&) = default;
};

// `tokens` and `sampled` of the rank; `bucket`: of the captured graph that is replayed, 0 = eager. Without
// data-parallel attention, of a plain pass.
PassRows pass_rows(const attention::ForwardMetadata& metadata, const Shard& shard, std::uint32_t tokens,
                   std::uint32_t sampled, std::uint32_t bucket);

class Communication {
 public:
  // All must outlive it.
  Communication(const ModelConfig& model, const Shard& shard, const OperatorCosts& costs,
                const proto::HostProfile::DataParallel& host)
      : model_(model), shard_(shard), costs_(costs), host_(host) {}

  // One kind of exchange, `times` in the pass.
  struct Exchange {
    KernelCost cost;
    double sent = 0;  // bytes that this rank sends in one
    double times = 0;
    double network = 0;     // of `sent`, to other nodes
    bool in_place = false;  // an all-reduce by NCCL: not part of a captured piece (inplace_all_reduce)
    // Of tokens with their experts' ranks.
    enum class Tokens : std::uint8_t { kNone, kDispatched, kCombined } tokens = Tokens::kNone;
  };
  // Those of the layers, then the embedding's, then the head's. `with_experts`: also what brings tokens to
  // their experts and back.
  std::vector<Exchange> layers(const PassRows& rows, bool with_experts = true) const;
  std::vector<Exchange> embedding(const PassRows& rows) const;
  std::vector<Exchange> head(const PassRows& rows) const;
  // Between pipeline stages. Hidden states and residuals travel in as many parts as attention has ranks, one
  // from each to its counterpart, where they are gathered (send_tensor_dict, recv_tensor_dict in
  // distributed/parallel_state.py); of layers that take the selection of an indexer before them, that too.
  // The last stage sends the sampled tokens to the first. A send costs what one of NCCL's all-to-all does.
  std::vector<Exchange> receive(const PassRows& rows) const;
  std::vector<Exchange> send(const PassRows& rows, bool with_selection) const;

  // Which of DeepEP's kernels run, --deepep-mode.
  bool low_latency(const PassRows& rows) const;

  // Rows of the weights of `part`, and of the norm before the MLP.
  std::uint32_t rows_of(ModelPart part, const PassRows& rows) const;
  // Elements that are copied between a rank's own tokens and those of all, in one layer.
  double copied_elements(const PassRows& rows) const;

 private:
  std::uint32_t scattered(const PassRows& rows) const;
  void all_reduce(double bytes, std::uint32_t gpus, double times, std::vector<Exchange>& out) const;
  void all_gather(double bytes_per_gpu, std::uint32_t gpus, double times, std::vector<Exchange>& out) const;
  void reduce_scatter(double bytes, std::uint32_t gpus, double times, std::vector<Exchange>& out) const;
  void full_layers(const PassRows& rows, double layers, std::vector<Exchange>& out) const;
  void scattered_layers(const PassRows& rows, double layers, std::vector<Exchange>& out) const;
  void expert_exchange(const PassRows& rows, double layers, std::vector<Exchange>& out) const;

  const ModelConfig& model_;
  const Shard& shard_;
  const OperatorCosts& costs_;
  const proto::HostProfile::DataParallel& host_;
};

}  // namespace tpsim::rank
