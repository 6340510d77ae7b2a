#include "rank/numeric/image_embeddings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/error.h"
#include "rank/config/image_layout.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/vision/patches.h"

namespace tpsim::rank {
namespace {

std::uint64_t key_of(const BatchImage& image) { return image_seed(image.content, image.width, image.height); }

// Whether the pass computes one of the image's tokens.
bool is_needed(const BatchImage& image, std::uint32_t prefix, std::uint32_t length) {
  return image.position + image.tokens > prefix && image.position < prefix + length;
}

}  // namespace

ImageEmbeddings::ImageEmbeddings(std::shared_ptr<ImageEncoder> encoder, std::uint32_t dp_size)
    : encoder_(std::move(encoder)) {
  for (std::uint32_t dp = 0; dp < dp_size; ++dp)
    dp_ranks_.emplace_back(encoder_ == nullptr ? 0 : encoder_->vision().cache_bytes);
}

// The embeddings of the images that a data-parallel rank's batch needs, by their keys.
std::unordered_map<std::uint64_t, ImageEmbeddings::Rows> ImageEmbeddings::rows_of(std::uint32_t dp_rank,
                                                                                  const TokenBatch& batch) {
  DpRank& of = dp_ranks_[dp_rank];
  const VisionConfig& vision = encoder_->vision();
  std::unordered_map<std::uint64_t, Rows> rows;
  std::vector<BatchImage> missing;
  for (std::size_t i = 0; i < batch.images.size(); ++i) {
    for (const BatchImage& image : batch.images[i]) {
      if (!is_needed(image, batch.prefix_lens[i], batch.q_lens[i])) continue;
      const std::uint64_t key = key_of(image);
      if (of.cache.use(key)) {
        ++of.cache_hits;
        rows[key] = of.kept.at(key);
      } else if (rows.try_emplace(key).second) {
        missing.push_back(image);
      }
    }
  }
  of.encoded += missing.size();
  for (std::uint32_t i = 0; i < missing.size(); ++i) {
    const std::uint64_t key = key_of(missing[i]);
    const ImageLayout layout = image_layout(vision, missing[i].width, missing[i].height);
    const auto encoded =
        std::make_shared<const std::vector<float>>(encoder_->encode(layout, key, dp_rank, i));
    rows[key] = encoded;
    for (const std::uint64_t gone : of.cache.keep(key, layout.embedded * vision.embedding_token_bytes()))
      of.kept.erase(gone);
    if (of.cache.use(key)) of.kept[key] = encoded;
  }
  return rows;
}

void ImageEmbeddings::place(const TokenBatch& batch, std::size_t first_token, DpRank& of,
                            const std::unordered_map<std::uint64_t, Rows>& rows) {
  const VisionConfig& vision = encoder_->vision();
  of.token_ids.assign(batch.token_ids.begin(), batch.token_ids.end());
  of.spans.resize(batch.q_lens.size());
  std::size_t first = 0;  // token of the request in the batch
  for (std::size_t i = 0; i < batch.q_lens.size(); first += batch.q_lens[i++]) {
    for (const BatchImage& image : batch.images[i]) {
      const ImageLayout layout = image_layout(vision, image.width, image.height);
      if (layout.tokens != image.tokens)
        throw_user_error("an image of {}x{} pixels has {} tokens in its prompt; the model makes {} of it",
                         image.width, image.height, image.tokens, layout.tokens);
      const std::uint32_t merged = vision.patch_size * vision.merge_size;
      of.spans[i].push_back({image.position, layout.height / merged, layout.width / merged});
      const std::uint32_t prefix = batch.prefix_lens[i];
      if (!is_needed(image, prefix, batch.q_lens[i])) continue;
      const std::vector<std::uint32_t> tokens = encoder_->image_tokens(layout);
      const Rows& embeddings = rows.at(key_of(image));
      used_.push_back(embeddings);
      std::size_t row = 0;
      for (std::uint32_t k = 0; k < image.tokens; ++k) {
        const bool embedded = tokens[k] == VisionTower::kEmbedded;
        const std::size_t mine = embedded ? row++ : 0;
        const std::uint32_t at = image.position + k;
        if (at < prefix || at >= prefix + batch.q_lens[i]) continue;
        const std::size_t token = first + (at - prefix);
        if (embedded) {
          placed_.push_back({first_token + token, embeddings->data() + mine * encoder_->row_size()});
        } else {
          of.token_ids[token] = tokens[k];
        }
      }
    }
  }
}

void ImageEmbeddings::begin(std::span<const TokenBatch> batches) {
  placed_.clear();
  used_.clear();
  std::size_t first_token = 0;
  for (std::uint32_t dp = 0; dp < batches.size(); ++dp) {
    const TokenBatch& batch = batches[dp];
    DpRank& of = dp_ranks_[dp];
    of.spans.clear();
    of.token_ids.clear();
    of.given_ids = batch.token_ids;
    if (!batch.images.empty()) {
      if (encoder_ == nullptr)
        throw_user_error("a batch has images, and the deployment has no vision encoder");
      const Stopwatch watch(seconds_);
      place(batch, first_token, of, rows_of(dp, batch));
    }
    first_token += batch.token_ids.size();
  }
}

std::span<const std::uint32_t> ImageEmbeddings::token_ids(std::uint32_t dp_rank) const {
  const DpRank& of = dp_ranks_[dp_rank];
  return of.token_ids.empty() ? of.given_ids : std::span<const std::uint32_t>(of.token_ids);
}

void ImageEmbeddings::embed(float* hidden) const {
  for (const Placed& placed : placed_) {
    const std::size_t size = encoder_->vision().out_hidden_size;
    std::memcpy(hidden + placed.token * size, placed.row, size * sizeof(float));
  }
}

void ImageEmbeddings::add_deepstack(std::uint32_t layer, float* hidden) const {
  if (placed_.empty() || layer >= encoder_->vision().deepstack) return;
  const std::size_t size = encoder_->vision().out_hidden_size;
  for (const Placed& placed : placed_)
    add(hidden + placed.token * size, placed.row + (1 + layer) * size, size);
}

std::optional<ImageTotals> ImageEmbeddings::totals(std::uint32_t dp_rank) const {
  if (encoder_ == nullptr) return std::nullopt;
  const DpRank& of = dp_ranks_[dp_rank];
  return ImageTotals{of.encoded, of.cache_hits, seconds_};
}

}  // namespace tpsim::rank
