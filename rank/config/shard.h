// One rank's share of a model, as SGLang cuts it: query heads are split; KV heads
// are split, or replicated where there are more ranks than heads; column- and row-parallel linear layers;
// vocabulary padded to 64 entries and split.
#pragma once

#include <cstdint>

#include "rank/config/model_config.h"
#include "rank/config/parallel_layout.h"

namespace tpsim::rank {

struct HeadRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  // inclusive
  std::uint32_t count() const { return last - first + 1; }
};

// Which stage of a pipeline a rank belongs to, and what that has besides layers (rank/config/pipeline.h).
struct PipelinePlace {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  bool head_on_every_stage = false;

  bool first() const { return rank == 0; }
  bool last() const { return rank + 1 == size; }
  bool keeps_head() const { return last() || head_on_every_stage; }
};

struct Shard {
  ParallelLayout layout;
  PipelinePlace stage;
  std::uint32_t tp_size = 1;  // of the layout
  std::uint32_t tp_rank = 0;
  Split attention;  // heads and embedding
  Split dense_mlp, shared_experts;
  Split experts, expert_width;  // whole experts, and of each a part
  Split head;
  HeadRange q_heads;
  HeadRange kv_heads;
  std::uint32_t vocab = 0;                     // entries of the (padded) vocabulary in the head
  std::uint32_t embedding_vocab = 0;           // and in the embedding
  std::uint32_t num_fused_shared_experts = 0;  // that run among the routed experts
  std::uint32_t ep_size = 1;                   // of the layout
};

// Throws UserError naming the flag (--tp, --dp-size, --ep-size …) where it does not divide what must be
// split.
Shard make_shard(const ModelConfig& model, const ParallelLayout& layout, std::uint32_t rank);
// Without data-parallel attention.
Shard make_shard(const ModelConfig& model, std::uint32_t tp_size, std::uint32_t tp_rank,
                 std::uint32_t ep_size = 1);

}  // namespace tpsim::rank
