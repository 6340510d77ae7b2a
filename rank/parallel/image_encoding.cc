#include "rank/parallel/image_encoding.h"

#include <algorithm>
#include <cstdint>

#include "proto/base/error.h"
#include "rank/config/image_layout.h"

namespace tpsim::rank {

ImageEncoding::ImageEncoding(const ImageEncoderConfig& config)
    : encoder_(config.encoder),
      by_request_(config.by_request),
      cache_bytes_(config.cache_bytes),
      cache_(cache_bytes_) {}

EncoderCost ImageEncoding::apply(const proto::ForwardBatch& batch) {
  const int images = batch.image_content_size();
  if (images == 0 && batch.image_width_size() == 0) return {};
  if (batch.image_width_size() != images || batch.image_height_size() != images)
    throw_user_error("batch {}: {} images, {} widths and {} heights; there must be as many of each",
                     batch.sequence_number(), images, batch.image_width_size(), batch.image_height_size());
  if (encoder_ == nullptr)
    throw_user_error("batch {} has images, and the deployment has no vision encoder",
                     batch.sequence_number());
  if (!by_request_ || batch.images_of_request().empty()) return encode(batch, 0, images);
  EncoderCost all;
  std::int64_t begin = 0;
  for (const std::uint32_t count : batch.images_of_request()) {
    if (begin + count > images) break;
    all += encode(batch, static_cast<int>(begin), static_cast<int>(begin + count));
    begin += count;
  }
  if (begin != images)
    throw_user_error("batch {}: {} images, and its requests have another number of them",
                     batch.sequence_number(), images);
  return all;
}

EncoderCost ImageEncoding::encode(const proto::ForwardBatch& batch, int begin, int end) {
  missing_.clear();
  missing_contents_.clear();
  for (int i = begin; i < end; ++i) {
    const ImageSize size{batch.image_width(i), batch.image_height(i)};
    if (std::min(size.width, size.height) == 0 || std::max(size.width, size.height) > kMaxImageSide)
      throw_user_error("batch {}: an image of {}x{} pixels; sides of 1 to {} are needed",
                       batch.sequence_number(), size.width, size.height, kMaxImageSide);
    // Equal contents of unequal sizes are unequal images, as their tensors are.
    const std::uint64_t content =
        (batch.image_content(i) * 0x9e3779b97f4a7c15U) ^ (std::uint64_t{size.width} << 32 | size.height);
    if (cache_.use(content)) {
      ++cache_hits_;
      continue;
    }
    if (std::find(missing_contents_.begin(), missing_contents_.end(), content) != missing_contents_.end())
      continue;
    missing_contents_.push_back(content);
    missing_.push_back(size);
  }
  encoded_ += missing_.size();
  for (std::size_t i = 0; i < missing_.size(); ++i)
    cache_.keep(missing_contents_[i], encoder_->embedding_bytes(missing_[i]));
  return encoder_->encode(missing_);
}

}  // namespace tpsim::rank
