#include "rank/parallel/image_encoding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "attention/full/full_attention.h"
#include "proto/base/archive.h"
#include "proto/base/error.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"

namespace tpsim::rank {
namespace {

ImageEncoderConfig config(std::uint64_t cache_bytes) {
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  return {std::make_shared<const VisionEncoder>(
              load_model_config("gemma-3-27b").vision, VisionSharing{}, profile,
              attention::find_full_attention("fa3", attention::GpuGeneration::kHopper, "h200-sxm")),
          cache_bytes};
}

proto::ForwardBatch batch(const std::vector<std::uint64_t>& contents, std::uint32_t side = 100) {
  proto::ForwardBatch message;
  for (const std::uint64_t content : contents) {
    message.add_image_width(side);
    message.add_image_height(side);
    message.add_image_content(content);
  }
  return message;
}

constexpr std::uint64_t kOne = 256 * 5376 * 2;  // bytes of one image of gemma-3-27b

TEST(ImageEncoding, EqualImagesAreEncodedOnce) {
  ImageEncoding encoding(config(10 * kOne));
  const double one = encoding.apply(batch({1, 1, 1})).seconds;
  EXPECT_GT(one, 0);
  EXPECT_EQ(encoding.encoded(), 1U);
  EXPECT_EQ(encoding.apply(batch({1})).seconds, 0);
  EXPECT_EQ(encoding.cache_hits(), 1U);
  EXPECT_GT(encoding.apply(batch({1}, 200)).seconds, 0) << "another size is another image";
  EXPECT_EQ(encoding.apply(batch({})).seconds, 0);
}

TEST(ImageEncoding, WithoutACacheEveryPassEncodes) {
  ImageEncoding encoding(config(0));
  EXPECT_GT(encoding.apply(batch({1})).seconds, 0);
  EXPECT_GT(encoding.apply(batch({1})).seconds, 0);
  EXPECT_EQ(encoding.encoded(), 2U);
  EXPECT_EQ(encoding.cache_hits(), 0U);
}

// Before SGLang 0.5.23 the encoder is called for each request.
TEST(ImageEncoding, RequestsAreEncodedByThemselvesWhereTheReleaseDoes) {
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  ImageEncoderConfig together = {
      std::make_shared<const VisionEncoder>(
          load_model_config("qwen3-vl-8b").vision, VisionSharing{}, profile,
          attention::find_full_attention("fa3", attention::GpuGeneration::kHopper, "h200-sxm")),
      1U << 30};
  ImageEncoderConfig apart = together;
  apart.by_request = true;
  const auto seconds = [](const ImageEncoderConfig& config, std::vector<std::uint64_t> contents,
                          const std::vector<std::uint32_t>& counts) {
    proto::ForwardBatch message = batch(contents, 400);
    for (const std::uint32_t count : counts) message.add_images_of_request(count);
    return ImageEncoding(config).apply(message).seconds;
  };
  const double one = seconds(apart, {1}, {1});
  EXPECT_NEAR(seconds(apart, {1, 2, 3, 4}, {1, 1, 1, 1}), 4 * one, 1e-9);
  EXPECT_LT(seconds(apart, {1, 2, 3, 4}, {4}), 2 * one) << "one call for the images of a request";
  EXPECT_EQ(seconds(together, {1, 2, 3, 4}, {1, 1, 1, 1}), seconds(apart, {1, 2, 3, 4}, {4}));
  EXPECT_NEAR(seconds(apart, {1, 1, 2}, {1, 2}), 2 * one, 1e-9) << "the first request's embedding is kept";
  EXPECT_THROW(seconds(apart, {1, 2}, {1}), UserError);
  EXPECT_THROW(seconds(apart, {1, 2}, {1, 4000000000U}), UserError);
}

TEST(ImageEncoding, RefusesDamagedBatches) {
  ImageEncoding encoding(config(0));
  proto::ForwardBatch damaged = batch({1});
  damaged.add_image_width(3);
  EXPECT_THROW(encoding.apply(damaged), UserError);
  EXPECT_THROW(encoding.apply(batch({1}, 0)), UserError);
  EXPECT_THROW(encoding.apply(batch({1}, 1U << 20)), UserError);
  EXPECT_THROW(ImageEncoding(ImageEncoderConfig{}).apply(batch({1})), UserError);
}

// Against a list that is searched.
TEST(EmbeddingCache, KeepsWhatWasUsedLast) {
  std::mt19937 random(3);
  EmbeddingCache cache(100);
  std::deque<std::pair<std::uint64_t, std::uint64_t>> list;  // used last in front
  for (int i = 0; i < 20000; ++i) {
    if (i % 500 == 7) {  // in another process
      StateWriter writer;
      writer(cache);
      EmbeddingCache later(100);
      StateReader reader(writer.bytes());
      reader(later);
      cache = std::move(later);
    }
    const std::uint64_t content = random() % 40;
    const std::uint64_t bytes = 1 + content * 7 % 120;
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == content; });
    ASSERT_EQ(cache.use(content), found != list.end());
    if (found != list.end()) {
      const auto entry = *found;
      list.erase(found);
      list.push_front(entry);
    } else {
      cache.keep(content, bytes);
      std::uint64_t sum = bytes;
      for (const auto& entry : list) sum += entry.second;
      while (bytes <= 100 && sum > 100) {
        sum -= list.back().second;
        list.pop_back();
      }
      if (bytes <= 100) list.push_front({content, bytes});
    }
    ASSERT_EQ(cache.size(), list.size());
    ASSERT_LE(cache.bytes(), 100U);
  }
}

}  // namespace
}  // namespace tpsim::rank
