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
#include "rank/config/parallel_layout.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
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
  ~NumericForward() override;

  std::span<const float> forward(std::span<const TokenBatch> batches) override;
  void release_pages(std::uint32_t dp_rank, std::span<const std::uint32_t> pages) override;
  void move_tokens(std::uint32_t dp_rank, std::span<const std::uint32_t> from,
                   std::span<const std::uint32_t> to) override;
  std::span<const float> hidden() const override;

  kvcache::KvStore& store(std::uint32_t local_rank);
  const NumericTimes& times() const override;
  std::optional<ImageTotals> image_totals(std::uint32_t dp_rank) const override;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tpsim::rank
