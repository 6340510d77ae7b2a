// The images of a data-parallel rank's passes: which of them must be encoded, because no embedding of them is
// kept, and what that costs.
//
// As _batch_encode_per_image_misses of SGLang 0.5.23 (managers/mm_schedule.py): all images of a pass that are
// missing are encoded together, equal ones once; an image of which a chunk has a part is encoded whole, and
// again for its next chunk unless it was kept. Releases before call the encoder for each request
// (_get_chunked_prefill_embedding of managers/mm_utils.py in 0.5.12).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/forward.pb.h"
#include "rank/vision/vision_encoder.h"

namespace tpsim::rank {

// What every process knows of the encoder; none: the deployment serves text only.
struct ImageEncoderConfig {
  std::shared_ptr<const VisionEncoder> encoder;
  std::uint64_t cache_bytes = 0;
  bool by_request = false;
};

class ImageEncoding {
 public:
  explicit ImageEncoding(const ImageEncoderConfig& config);

  // Cost of the images of `batch`, the batch of one data-parallel rank. Throws UserError, with the number of
  // the batch, where its lists do not fit each other, or it has images and there is no encoder.
  EncoderCost apply(const proto::ForwardBatch& batch);

  // Embeddings that are kept are gone; what was counted stays.
  void restart() { cache_ = EmbeddingCache(cache_bytes_); }

  bool active() const { return encoder_ != nullptr; }
  std::uint64_t encoded() const { return encoded_; }
  std::uint64_t cache_hits() const { return cache_hits_; }

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(cache_, encoded_, cache_hits_);
  }

 private:
  // Of images [begin, end) of the batch, those that are missing, together.
  EncoderCost encode(const proto::ForwardBatch& batch, int begin, int end);

  std::shared_ptr<const VisionEncoder> encoder_;
  bool by_request_;
  std::uint64_t cache_bytes_;
  EmbeddingCache cache_;
  std::vector<ImageSize> missing_;
  std::vector<std::uint64_t> missing_contents_;
  std::uint64_t encoded_ = 0, cache_hits_ = 0;
};

}  // namespace tpsim::rank
