// What Gemma 3's image tokens see, against SGLang's prepare_attn_masks done step by step and the end of its
// kernel's loop, over random prompts, chunks and windows; and what Transformers computes where one tile has
// all.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "rank/numeric/pass.h"

namespace tpsim::rank {
namespace {

std::uint32_t draw(std::mt19937& random, std::uint32_t from, std::uint32_t to) {
  return std::uniform_int_distribution<std::uint32_t>(from, to)(random);
}

std::vector<BatchImage> draw_images(std::mt19937& random, std::uint32_t length) {
  std::vector<BatchImage> images;
  std::uint32_t at = draw(random, 0, 6);
  while (at < length) {
    BatchImage& image = images.emplace_back();
    image.position = at;
    image.tokens = draw(random, 1, 20);
    at += image.tokens + draw(random, 0, 9);
  }
  return images;
}

// tril, then ones in the squares of the images that begin here; Python's slices end with the tensor.
std::vector<std::vector<int>> prepared(const std::vector<BatchImage>& images, std::uint32_t prefix,
                                       std::uint32_t q_len) {
  std::vector<std::vector<int>> mask(q_len, std::vector<int>(prefix + q_len, 0));
  for (std::uint32_t q = 0; q < q_len; ++q) std::fill_n(mask[q].begin(), prefix + q + 1, 1);
  for (const BatchImage& image : images) {
    if (image.position < prefix) continue;
    for (std::uint32_t q = image.position; q < image.position + image.tokens; ++q)
      for (std::uint32_t k = image.position; k < image.position + image.tokens; ++k)
        if (q - prefix < q_len && k < prefix + q_len) mask[q - prefix][k] = 1;
  }
  return mask;
}

TEST(ImageMask, IsSGLangsMaskWithinTheTilesOfItsKernel) {
  std::mt19937 random(11);
  int masked = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t prefix = draw(random, 0, 1) * draw(random, 0, 40);
    const std::uint32_t q_len = draw(random, 1, 60);
    const std::uint32_t tile = draw(random, 0, 1) == 0 ? 128 : draw(random, 1, 32);
    const std::uint32_t window = draw(random, 0, 1) * draw(random, 1, 30);
    const std::vector<BatchImage> images = draw_images(random, prefix + q_len + 10);
    std::vector<std::vector<int>> wanted = prepared(images, prefix, q_len);
    bool causal = true;
    for (std::uint32_t q = 0; q < q_len; ++q) {
      const std::uint32_t loop_end = prefix + std::min(q_len, (q / tile + 1) * tile);
      for (std::uint32_t k = 0; k < prefix + q_len; ++k) {
        if (k >= loop_end) wanted[q][k] = 0;
        if (k > prefix + q && wanted[q][k] == 1) causal = false;
        if (window != 0 && k + window <= prefix + q) wanted[q][k] = 0;
      }
    }
    const std::vector<std::uint8_t> mask = image_mask(images, prefix, q_len, tile, window);
    ASSERT_EQ(mask.empty(), causal) << "round " << round;
    if (causal) continue;
    ++masked;
    for (std::uint32_t q = 0; q < q_len; ++q)
      for (std::uint32_t k = 0; k < prefix + q_len; ++k)
        ASSERT_EQ(mask[q * (prefix + q_len) + k], wanted[q][k]) << "round " << round << ", " << q << " " << k;
  }
  EXPECT_GT(masked, 500);
}

TEST(ImageMask, WholeImagesSeeAllOfThemselves) {
  const std::vector<BatchImage> images = {{.position = 2, .tokens = 3}, {.position = 5, .tokens = 2}};
  // Images that touch are two.
  EXPECT_EQ(image_sight(images, 0, 8, 128), (std::vector<std::uint32_t>{1, 2, 5, 5, 5, 7, 7, 8}));
  // Behind a cached prefix that cuts the first one, the rest of it is causal.
  EXPECT_EQ(image_sight(images, 3, 5, 128), (std::vector<std::uint32_t>{4, 5, 7, 7, 8}));
  // A chunk that ends within the second one shows what it has.
  EXPECT_EQ(image_sight(images, 0, 6, 128), (std::vector<std::uint32_t>{1, 2, 5, 5, 5, 6}));
  // Tiles of 4 queries.
  EXPECT_EQ(image_sight(images, 0, 8, 4), (std::vector<std::uint32_t>{1, 2, 4, 4, 5, 7, 7, 8}));
}

}  // namespace
}  // namespace tpsim::rank
