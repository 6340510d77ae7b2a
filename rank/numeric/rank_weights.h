// The weights of one rank: its shards of a checkpoint's tensors, under their Hugging Face names.
//
// Cut as SGLang cuts: query, key and value projections by heads (KV heads are replicated where there are more
// ranks than heads), gate and up by columns, output and down by rows, embedding and head by vocabulary,
// experts by their width (or whole, with Shard::ep_size). MLA's latent projections and all norms are
// replicated.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/linear/packed_matrix.h"
#include "rank/llm/draft_model.h"
#include "rank/numeric/weight_reader.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

struct RankWeights;

// What a head that drafts has besides layers; the same on every rank.
struct DraftHeadWeights {
  DraftKind kind = DraftKind::kEagle;
  // fc or eh_proj: [hidden, 2 x hidden] of an embedding and a hidden state; EAGLE3: [hidden, several x
  // hidden] of the target's hidden states.
  PackedMatrix join;
  std::vector<float> join_bias;
  // Of the embedding and the hidden state before they are joined (NEXTN), or before the layer, which reads
  // both (EAGLE3, where the embedding's is the layer's input_norm). Empty: none.
  std::vector<float> embedding_norm, hidden_norm;
  // Whose embedding it reads, and whose output head where it has none.
  std::shared_ptr<const RankWeights> target;
};

struct RankWeights {
  Shard shard;
  PackedMatrix embedding;         // [shard.embedding_vocab, hidden]: entries shard.attention.rank *
                                  // shard.embedding_vocab and on
  PackedMatrix head;              // empty where tied to the embedding
  std::vector<float> final_norm;  // empty: none (EAGLE)
  StreamWeights head_streams;     // DeepSeek V4: of what the head reads
  std::vector<LayerWeights> layers;
  std::shared_ptr<const DraftHeadWeights> draft;  // null: a model

  // Of a head that drafts, the target's.
  const RankWeights& with_embedding() const { return draft ? *draft->target : *this; }
  const RankWeights& with_head() const { return draft && head.n() == 0 ? *draft->target : *this; }
  const PackedMatrix& head_matrix() const { return head.n() == 0 ? embedding : head; }
};

// Throws UserError where a tensor is missing or has another shape than the config says.
RankWeights load_rank_weights(const ModelConfig& model, const Shard& shard, WeightType type,
                              const TensorSource& source);
// The same in parts, for callers that need one at a time: all but the layers, and layer `index`.
RankWeights load_ends(const ModelConfig& model, const Shard& shard, WeightType type,
                      const TensorSource& source);
LayerWeights load_layer(const ModelConfig& model, const Shard& shard, WeightType type,
                        const TensorSource& source, std::uint32_t index);
// Of a head that drafts for `target`, which is the same rank's.
RankWeights load_draft_head_weights(const DraftModel& draft, const Shard& shard, WeightType type,
                                    const TensorSource& source, std::shared_ptr<const RankWeights> target);
// The target's token of each entry of the draft's vocabulary: EAGLE3's d2t says how far off it is. Empty
// where there is none.
std::vector<std::uint32_t> load_token_map(const DraftModel& draft, std::uint32_t target_vocab_size,
                                          const TensorSource& source);

}  // namespace tpsim::rank
