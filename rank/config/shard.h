// One rank's share of a model, as SGLang cuts it: query heads are split; KV heads
// are split, or replicated where there are more ranks than heads; column- and row-parallel linear layers;
// vocabulary padded to 64 entries and split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/model_config.h"

namespace tpsim::rank {

// How the GPUs of a deployment share a model, under the names of SGLang's flags.
//
// Of tp_size GPUs, each dp_size-th part serves its own requests (--enable-dp-attention): attention is cut
// over the tp_size / dp_size ranks of that part, and everything after it over all, or as said below. Experts
// are spread over ep_size groups of ranks, and within a group each expert is cut by its width. (SGLang 0.5
// distributed/parallel_state.py initialize_model_parallel, layers/dp_attention.py.)

// SGLang's --deepep-mode: kernels for throughput, for low latency, or the ones for prefill and the others for
// decode.
enum class DeepEpMode : std::uint8_t { kAuto, kNormal, kLowLatency };

// SGLang's --moe-a2a-backend.
enum class MoeA2aBackend : std::uint8_t {
  kNone,   // every rank of the group sees all tokens, computes its experts, and the sums are reduced
  kDeepEp  // tokens travel to the ranks of their experts and back
};

// One rank's part of something that is cut in `size`.
struct Split {
  std::uint32_t size = 1;
  std::uint32_t rank = 0;
};

struct ParallelLayout {
  std::uint32_t tp_size = 1;
  std::uint32_t ep_size = 1;            // divides tp_size
  std::uint32_t dp_size = 1;            // of attention; divides tp_size
  bool moe_dense_tp1 = false;           // --moe-dense-tp-size 1: dense MLPs are whole on every rank
  bool dp_lm_head = false;              // --enable-dp-lm-head: each part has a head of its own
  std::uint32_t redundant_experts = 0;  // copies in each layer, on all groups together
  MoeA2aBackend moe_a2a = MoeA2aBackend::kNone;
  DeepEpMode deepep_mode = DeepEpMode::kAuto;
  // Sums of at most 2,048 tokens and the norms behind them are one kernel of FlashInfer's
  // (FUSE_ALLREDUCE_MAX_BATCH_SIZE of layers/communicator.py).
  bool fuses_all_reduces = false;
  std::uint32_t nodes = 1;           // --nnodes: of these ranks times the pipeline's stages
  std::uint32_t stages_of_node = 0;  // pipeline stages on one of several nodes; 0: all on one

  std::uint32_t attn_tp_size() const { return tp_size / dp_size; }
  std::uint32_t moe_tp_size() const { return tp_size / ep_size; }
  bool a2a() const { return moe_a2a != MoeA2aBackend::kNone; }
  // Whether some layer needs the tokens of all data-parallel ranks (require_mlp_tp_gather).
  bool gathers_mlp() const { return dp_size > 1 && !(moe_dense_tp1 && dp_lm_head && a2a()); }

  // From stage `stage` of `stages` to the next, the last of which is the first.
  bool sends_over_network(std::uint32_t stage, std::uint32_t stages) const {
    return stages_of_node > 0 && stage / stages_of_node != (stage + 1) % stages / stages_of_node;
  }

  std::uint32_t dp_rank(std::uint32_t rank) const { return rank / attn_tp_size(); }
  Split attention(std::uint32_t rank) const { return {attn_tp_size(), rank % attn_tp_size()}; }
  Split dense_mlp(std::uint32_t rank) const { return moe_dense_tp1 ? Split{} : Split{tp_size, rank}; }
  Split shared_experts(std::uint32_t rank) const { return a2a() ? Split{} : Split{tp_size, rank}; }
  Split experts(std::uint32_t rank) const { return {ep_size, rank / moe_tp_size()}; }
  Split expert_width(std::uint32_t rank) const { return {moe_tp_size(), rank % moe_tp_size()}; }
};

struct HeadRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  // inclusive
  std::uint32_t count() const { return last - first + 1; }
};

// The heads of a layer that a rank has.
struct RankHeads {
  HeadRange q, kv;
};
// REQUIRES: make_shard() does not refuse the model.
RankHeads rank_heads(const AttentionHeads& heads, Split attention);

// Which stage of a pipeline a rank belongs to, and what that has besides layers: stage_shard().
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

// Pipeline stages: which layers each has, and what else of the model (SGLang 0.5 distributed/utils.py
// get_pp_indices, utils/common.py make_layers, and the constructors in models/*.py).

struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Layers of each of `pp_size` stages: even shares, and one more for each of the last stages where they do not
// come out even; or as many as `partition` says, SGLang's environment variable SGLANG_PP_LAYER_PARTITION
// ("" = not set). Throws UserError for more stages than layers, and for a partition of other sums or counts.
std::vector<LayerRange> pipeline_layers(std::uint32_t num_layers, std::uint32_t pp_size,
                                        const std::string& partition);

// Throws UserError where SGLang's code of the model has no pipeline, or this simulation not that of the
// model.
void check_pipeline(const ModelConfig& model);
// Qwen3-VL adds features of an image to the outputs of its first layers, which the first stage must have
// (models/qwen3_vl.py). Throws UserError.
void check_deepstack(const ModelConfig& model, const std::vector<LayerRange>& stages);

// What a stage has of the model: its layers only.
ModelConfig stage_model(const ModelConfig& model, LayerRange layers);

// A rank's share of `stage_model` on stage `pp_rank` of `pp_size`: the embedding is on the first, norm and
// head are on the last. Some of SGLang's models keep a head, which nothing is multiplied with, on every
// stage.
Shard stage_shard(const ModelConfig& stage_model, const ParallelLayout& layout, std::uint32_t tp_rank,
                  std::uint32_t pp_rank, std::uint32_t pp_size);

}  // namespace tpsim::rank
