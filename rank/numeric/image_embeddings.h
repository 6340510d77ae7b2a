// The images of numeric passes: encodes those whose embeddings are not kept, and puts these in the place of
// the embeddings of the tokens that stand for them.
//
// What is encoded and what is kept follows SGLang, as in modeled execution (rank/parallel/image_encoding.h):
// the same passes have the same counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "rank/numeric/pass.h"
#include "rank/numeric/token_batch.h"
#include "rank/numeric/vision/image_encoder.h"
#include "rank/vision/vision_encoder.h"

namespace tpsim::rank {

class ImageEmbeddings {
 public:
  // `encoder`: null where images are not served.
  ImageEmbeddings(std::shared_ptr<ImageEncoder> encoder, std::uint32_t dp_size);

  // The images of a pass: all processes call it with the same batches. Throws UserError where there are some
  // and no encoder.
  void begin(std::span<const TokenBatch> batches);
  // The ids of a data-parallel rank's tokens, those of images' separators in their places.
  std::span<const std::uint32_t> token_ids(std::uint32_t dp_rank) const;
  // Of each request of a data-parallel rank, where its images are; empty: no request has any.
  std::span<const std::vector<ImageSpan>> spans(std::uint32_t dp_rank) const {
    return dp_ranks_[dp_rank].spans;
  }
  // hidden [tokens of all data-parallel ranks, hidden_size]: image tokens get their embeddings …
  void embed(float* hidden) const;
  // … and after text layer `layer`, what the encoder gave for it.
  void add_deepstack(std::uint32_t layer, float* hidden) const;

  std::optional<ImageTotals> totals(std::uint32_t dp_rank) const;

 private:
  using Rows = std::shared_ptr<const std::vector<float>>;
  struct DpRank {
    explicit DpRank(std::uint64_t cache_bytes) : cache(cache_bytes) {}
    EmbeddingCache cache;
    std::unordered_map<std::uint64_t, Rows> kept;  // what `cache` says
    std::uint64_t encoded = 0, cache_hits = 0;
    // Of the pass.
    std::vector<std::vector<ImageSpan>> spans;
    std::vector<std::uint32_t> token_ids;  // empty: as the batch has them
    std::span<const std::uint32_t> given_ids;
  };
  // A token of the pass, and its row.
  struct Placed {
    std::size_t token = 0;
    const float* row = nullptr;
  };

  std::unordered_map<std::uint64_t, Rows> rows_of(std::uint32_t dp_rank, const TokenBatch& batch);
  void place(const TokenBatch& batch, std::size_t first_token, DpRank& of,
             const std::unordered_map<std::uint64_t, Rows>& rows);

  std::shared_ptr<ImageEncoder> encoder_;
  std::vector<DpRank> dp_ranks_;
  std::vector<Placed> placed_;
  std::vector<Rows> used_;  // of the pass: what placed_ points into
  double seconds_ = 0;
};

}  // namespace tpsim::rank
