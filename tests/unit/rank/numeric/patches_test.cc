// How tiles become rows of patches, and squares of rows become one.
#include "rank/numeric/vision/patches.h"

#include <gtest/gtest.h>

#include <vector>

namespace tpsim::rank {
namespace {

TEST(Patches, PatchesAreReadAsAConvolutionReadsThem) {
  ImagePixels pixels;
  pixels.tiles = 2;
  pixels.height = 4;
  pixels.width = 6;
  for (int i = 0; i < 2 * 3 * 4 * 6; ++i) pixels.values.push_back(static_cast<float>(i));
  const std::vector<float> rows = square_patches(pixels, 2);
  ASSERT_EQ(rows.size(), pixels.values.size());
  const float* at = rows.data();
  for (int tile = 0; tile < 2; ++tile)
    for (int row = 0; row < 2; ++row)
      for (int column = 0; column < 3; ++column)
        for (int channel = 0; channel < 3; ++channel)
          for (int y = 0; y < 2; ++y)
            for (int x = 0; x < 2; ++x, ++at)
              EXPECT_EQ(*at, ((tile * 3 + channel) * 4 + row * 2 + y) * 6 + column * 2 + x);
}

TEST(Patches, SquaresOfRowsBecomeOneRow) {
  constexpr int kSide = 6;
  constexpr int kMerge = 3;
  constexpr int kSize = 2;
  std::vector<float> x;
  for (int i = 0; i < 2 * kSide * kSide * kSize; ++i) x.push_back(static_cast<float>(i));
  for (const bool transposed : {false, true}) {
    const std::vector<float> merged = merge_squares(x.data(), 2, kSide, kMerge, kSize, transposed);
    ASSERT_EQ(merged.size(), x.size());
    const float* at = merged.data();
    for (int tile = 0; tile < 2; ++tile)
      for (int first = 0; first < kSide / kMerge; ++first)
        for (int second = 0; second < kSide / kMerge; ++second)
          for (int y = 0; y < kMerge; ++y)
            for (int dx = 0; dx < kMerge; ++dx)
              for (int c = 0; c < kSize; ++c, ++at) {
                const int row = (transposed ? second : first) * kMerge + y;
                const int column = (transposed ? first : second) * kMerge + dx;
                EXPECT_EQ(*at, ((tile * kSide + row) * kSide + column) * kSize + c);
              }
  }
}

}  // namespace
}  // namespace tpsim::rank
