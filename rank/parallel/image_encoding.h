// The images of a data-parallel rank's passes: which of them must be encoded, because no embedding of them is
// kept, and what that costs.
//
// As _batch_encode_per_image_misses of SGLang 0.5.23 (managers/mm_schedule.py): all images of a pass that are
// missing are encoded together, equal ones once; an image of which a chunk has a part is encoded whole, and
// again for its next chunk unless it was kept.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/forward.pb.h"
#include "rank/model/vision_encoder.h"
#include "rank/model/embedding_cache.h"

namespace tpsim::rank {

// What every process knows of the encoder; none: the deployment serves text only.
struct ImageEncoderConfig {
  std::shared_ptr<const VisionEncoder> encoder;
  std::uint64_t cache_bytes = 0;
};

class ImageEncoding {
 public:
  explicit ImageEncoding(const ImageEncoderConfig& config);

  // Cost of the images of `batch`, the batch of one data-parallel rank. Throws UserError, with the number of
  // the batch, where its lists do not fit each other, or it has images and there is no encoder.
  EncoderCost apply(const proto::ForwardBatch& batch);

  bool active() const { return encoder_ != nullptr; }
  std::uint64_t encoded() const { return encoded_; }
  std::uint64_t cache_hits() const { return cache_hits_; }

 private:
  std::shared_ptr<const VisionEncoder> encoder_;
  EmbeddingCache cache_;
  std::vector<ImageSize> missing_;
  std::vector<std::uint64_t> missing_contents_;
  std::uint64_t encoded_ = 0, cache_hits_ = 0;
};

}  // namespace tpsim::rank
