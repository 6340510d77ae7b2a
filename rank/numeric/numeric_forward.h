// The forward pass of a transformer on the ranks that this process stands in for, in lockstep: after every
// row-parallel layer the partial results of all ranks are added up.
//
// With data-parallel attention a rank attends for the requests of its data-parallel rank alone; the sum of
// all ranks, each with zeros in the rows of the others, is the tokens of all together (SGLang's SUM_LEN
// gather, layers/dp_attention.py), which the MLPs see. What is whole on every rank (--moe-dense-tp-size 1,
// shared experts with an all-to-all) is computed for a part of the rank's own tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "kvcache/storage/kv_store.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/attention_layer.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/compressed_attention_layer.h"
#include "rank/numeric/hyper_connections.h"
#include "rank/numeric/image_embeddings.h"
#include "rank/numeric/linear_attention_layer.h"
#include "rank/numeric/mlp_layer.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"
#include "rank/numeric/vision/image_encoder.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

struct NumericOptions {
  WeightType weight_type = WeightType::kFp32;  // how weights are kept in memory
  NumberFormat kv_format = NumberFormat::kFp32;
  // Bytes of a stored latent of sparse attention (attention/sparse_kernels.h); 0: as kv_format has it.
  std::uint32_t sparse_token_bytes = 0;
  std::uint32_t page_size = 1;
  std::uint32_t num_pages = 0;
  ParallelLayout layout;  // tp_size is that of the collectives
  bool tag_pages = false;
  // Layers with a sliding window let go of what slid out. Only where no request reads what another one wrote:
  // a shorter match of the radix pool needs what a longer sequence left behind.
  bool free_windows = false;
  // What hidden() says: nothing, or what the output head reads, or that before the last norm.
  enum class Hidden : std::uint8_t { kNone, kNormed, kUnnormed };
  Hidden hidden = Hidden::kNone;
  // hidden() says instead what goes into each of these layers, side by side; ascending.
  std::vector<std::uint32_t> hidden_layers;
};

// The weights of the ranks of one process, which the passes of several runs (NumericForward) may share.
using LoadedRanks = std::vector<std::shared_ptr<const RankWeights>>;
// Throws UserError where a tensor is missing or misshaped, the model cannot be cut, or the memory does not
// suffice for weights and KV cache, which is said before anything is loaded.
LoadedRanks load_ranks(const ModelConfig& model, const TensorSource& source, const NumericOptions& options,
                       const Collectives& collectives);

// Of a head that drafts for `target`.
LoadedRanks load_draft_head_ranks(const DraftModel& draft, const TensorSource& source,
                                  const NumericOptions& options, const Collectives& collectives,
                                  const LoadedRanks& target);

class NumericForward : public TokenForward {
 public:
  // `backend` serves all ranks of `weights`: ranks of a deployment make the same plans. Throws UserError
  // where the memory does not suffice for the KV cache. `images`: encodes them; null where none are served.
  NumericForward(const ModelConfig& model, LoadedRanks weights, NumericOptions options,
                 std::unique_ptr<attention::AttentionBackend> backend, Collectives& collectives,
                 ThreadPool& pool, std::shared_ptr<ImageEncoder> images = nullptr);

  std::span<const float> forward(std::span<const TokenBatch> batches) override;
  void release_pages(std::uint32_t dp_rank, std::span<const std::uint32_t> pages) override;
  void move_tokens(std::uint32_t dp_rank, std::span<const std::uint32_t> from,
                   std::span<const std::uint32_t> to) override;
  void copy_pages(std::uint32_t dp_rank, std::span<const std::uint32_t> from,
                  std::span<const std::uint32_t> to) override;
  std::span<const float> hidden() const override { return captured_; }

  kvcache::KvStore& store(std::uint32_t local_rank) { return ranks_.at(local_rank)->store; }
  const NumericTimes& times() const override { return times_; }
  std::optional<ImageTotals> image_totals(std::uint32_t dp_rank) const override {
    return images_.totals(dp_rank);
  }

 private:
  // One rank: its weights and its keys and values.
  struct Rank {
    Rank(std::shared_ptr<const RankWeights> loaded, const kvcache::KvStoreConfig& config,
         const LinearLayers& linear, const kvcache::KvStoreConfig& index,
         const kvcache::KvStoreConfig& entries, const kvcache::KvStoreConfig& states)
        : owner(std::move(loaded)),
          weights(*owner),
          dp_rank(weights.shard.layout.dp_rank(weights.shard.tp_rank)),
          store(config),
          index_keys(index),
          compressed(entries, states),
          linear_layers(linear),
          linear_states(linear) {}
    std::shared_ptr<const RankWeights> owner;
    const RankWeights& weights;
    const std::uint32_t dp_rank;
    kvcache::KvStore store;
    kvcache::KvStore index_keys;
    CompressedStores compressed;
    const LinearLayers linear_layers;
    GatedDeltaStates linear_states;
    HeadsOfAllRanks heads;
  };

  // After every rank has filled its part: hidden_ plus the sum, or what `norm` makes of it.
  void reduce_into_hidden(const std::vector<float>& bias, const std::vector<float>& post_norm);
  void reduce(std::uint64_t count, float* out);
  std::vector<float>& part(std::size_t rank, std::size_t size);
  // Zeros but in the rows of the rank's own tokens, `width` elements each, which `fill` fills.
  template <typename Fill>
  void fill_own(std::size_t rank, std::size_t width, Fill fill);
  void share_squares(std::uint32_t layer);
  MlpLayer::Rows whole_rows(const Rank& rank) const;
  void exchange_experts(std::uint32_t layer);
  void add_feed_forward(std::uint32_t layer);
  void add_gemma_experts(std::uint32_t layer);
  void begin(std::span<const TokenBatch> batches);
  std::vector<std::uint32_t> token_ids() const;
  void embed();
  void hand_out_pages(std::uint32_t dp_rank, const TokenBatch& batch);
  void release_what_slid_out(std::uint32_t dp_rank, const TokenBatch& batch);
  // Without weights: x itself. Rows of `out` are `stride` apart; 0: hidden_size.
  void norm(const std::vector<float>& weight, const float* x, std::uint32_t rows, float* out,
            std::size_t stride = 0);
  void join(std::span<const TokenBatch> batches, const DraftHeadWeights& draft);
  std::uint32_t norm_inputs(const LayerWeights& layer);
  void capture(std::uint32_t layer);
  void last_rows();
  void gather_logits(const Rank& first);
  std::span<const float> head();

  const ModelConfig model_;
  const NumericOptions options_;
  std::unique_ptr<attention::AttentionBackend> backend_;
  Collectives& collectives_;
  ThreadPool& pool_;
  NumericTimes times_;
  AttentionLayer attention_;
  CompressedAttentionLayer compressed_attention_;
  HyperConnections streams_;
  LinearAttentionLayer linear_attention_;
  MlpLayer mlp_;
  ExpertExchange exchange_;
  ImageEmbeddings images_;
  std::vector<RotaryEmbedding> ropes_;
  std::vector<AttentionLayers> layers_;  // alike on all ranks
  std::vector<std::unique_ptr<Rank>> ranks_;

  // Of the pass: tokens of the data-parallel ranks, one rank's after the other.
  std::uint32_t tokens_ = 0;
  std::uint32_t wanted_ = 0;  // rows of logits
  struct Part {
    std::uint32_t first_token = 0, tokens = 0;
    std::uint32_t first_wanted = 0, wanted = 0;
    bool all = false;                  // every token's logits are wanted
    std::unique_ptr<const Pass> pass;  // null: nothing to do
  };
  std::vector<Part> of_dp_;
  std::vector<float> hidden_, normed_, summed_, logits_, gathered_, routed_;
  std::vector<float> embedded_, joined_;   // of heads that draft
  std::vector<float> squares_;             // of queries and keys, over all ranks
  std::vector<float> captured_;            // what hidden() says
  std::vector<std::vector<float>> parts_;  // per rank of this process
  std::vector<const float*> views_;
};

}  // namespace tpsim::rank
