#include "rank/llm/two_batch_overlap.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tpsim::rank {
namespace {

HalfLayer half_layer() {
  return {.prepare = 1, .core = 4, .shared = 1, .experts = 6, .dispatch = 3, .combine = 5};
}

// Exchanges shorter than the other half's computing show at the ends alone, in the order for prefill.
TEST(TwoBatchOverlap, ExchangesHideBehindTheOtherHalf) {
  const HalfLayer half = half_layer();
  const double compute = half.prepare + half.core + half.shared + half.experts;
  for (const bool decode : {false, true}) {
    const double few = two_batch_seconds(half, half, 10, decode);
    const double more = two_batch_seconds(half, half, 11, decode);
    EXPECT_GE(few, 20 * compute);
    EXPECT_LT(few, 20 * (compute + half.dispatch + half.combine));
    if (decode) continue;
    EXPECT_DOUBLE_EQ(more - few, 2 * compute);
  }
  HalfLayer slow = half;
  slow.dispatch = slow.combine = 30;  // nothing hides more than there is to compute
  EXPECT_GE(two_batch_seconds(slow, slow, 10, false), 10 * 2 * 60);
}

TEST(TwoBatchOverlap, OneLayerByHand) {
  const HalfLayer half = half_layer();
  // Attention of both ends at 10, the first dispatch at 8, the second at 13; experts from 10 to 16 and 22;
  // the first combine ends at 21, the second at 27, where 24 is when both shared experts are done.
  EXPECT_DOUBLE_EQ(two_batch_seconds(half, half, 1, false), 27);
  // What keeps the multiprocessors hides behind nothing.
  HalfLayer on_device = half;
  on_device.dispatching = 2;
  on_device.dispatch = on_device.combine = 0;
  EXPECT_DOUBLE_EQ(two_batch_seconds(on_device, on_device, 3, true), 3 * 2 * (12 + 2));
}

// SGLang 0.5.23's compute_split_seq_index() and compute_split_token_index().
TEST(TwoBatchOverlap, CutsWholeRequestsWhereHalvesAreClose) {
  const auto cut = [](std::vector<std::uint32_t> lens, double threshold) {
    const ExtendCut at = cut_extend(lens, threshold);
    return std::pair{at.requests, at.tokens};
  };
  EXPECT_EQ(cut({4096, 4096, 4096, 4096}, 0.48), std::pair(std::size_t{2}, 8192U));
  EXPECT_EQ(cut({100, 5000}, 0.48), std::pair(std::size_t{2}, 2550U));
  EXPECT_EQ(cut({100, 5000}, 0), std::pair(std::size_t{1}, 100U));
  EXPECT_EQ(cut({4096}, 0.48), std::pair(std::size_t{1}, 2048U));
  EXPECT_EQ(cut({1}, 0.48), std::pair(std::size_t{0}, 0U));  // a request without a token is not one
}

}  // namespace
}  // namespace tpsim::rank
