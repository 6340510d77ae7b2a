// What Gemma 3's mask of images costs: backends that take one, and none else; its bytes as the kernel's tiles
// load them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/selection/registry.h"
#include "tests/unit/attention/gpu.h"

namespace tpsim::attention::image_mask_cost_test {
namespace {

struct Pass {
  std::vector<std::uint32_t> prefixes, extends;
  ForwardMetadata metadata(bool image_mask) const {
    ForwardMetadata m;
    m.forward_mode = proto::EXTEND;
    m.extend_prefix_lens = prefixes;
    m.extend_lens = extends;
    m.image_mask = image_mask;
    return m;
  }
};

LayerShape layer_of(std::uint32_t window) {
  LayerShape layer;
  layer.num_q_heads = 16;
  layer.num_kv_heads = 8;
  layer.head_dim = layer.v_head_dim = 128;
  layer.sliding_window = window;
  return layer;
}

TEST(ImageMaskCost, IsTritonsAlone) {
  const Pass pass{{0, 300}, {1000, 50}};
  for (const std::string name : {"fa3", "flashinfer", "triton"}) {
    const std::unique_ptr<AttentionBackend> backend =
        create_attention_backend(name, tpsim::testing::gpu(), /*page_size=*/1);
    EXPECT_EQ(backend->masks_images(), name == "triton");
    const LayerShape layer = layer_of(0);
    backend->init_forward_metadata(pass.metadata(false));
    const KernelCost plain = backend->forward_extend(layer);
    const KernelCost plan = backend->plan_cost();
    backend->init_forward_metadata(pass.metadata(true));
    const KernelCost masked = backend->forward_extend(layer);
    const KernelCost masked_plan = backend->plan_cost();
    if (name != "triton") {
      EXPECT_EQ(masked.seconds, plain.seconds);
      EXPECT_EQ(masked_plan.seconds, plan.seconds);
      continue;
    }
    // Tiles of 128 queries walk the new tokens up to their own end in steps of 64, for each query head.
    double loaded = 0;
    for (const std::uint32_t q_len : pass.extends) {
      for (std::uint32_t row = 0; row < q_len; row += 128)
        loaded += 128.0 * ((std::min(row + 128, q_len) + 63) / 64 * 64);
    }
    EXPECT_DOUBLE_EQ(masked.bytes - plain.bytes, loaded * 16);
    EXPECT_GT(masked.seconds, plain.seconds);
    // A byte for every pair, prefixes included; three times written and twice read.
    EXPECT_DOUBLE_EQ(masked_plan.bytes - plan.bytes, 5.0 * (1000.0 * 1000 + 50.0 * 350));
    EXPECT_EQ(masked_plan.launches - plan.launches, 10U);
  }
}

TEST(ImageMaskCost, APairTakesNone) {
  EXPECT_FALSE(create_attention_backend("triton+fa3", tpsim::testing::gpu(), 1)->masks_images());
}

TEST(ImageMaskCost, AWindowLoadsLess) {
  const Pass pass{{0}, {4000}};
  const std::unique_ptr<AttentionBackend> backend =
      create_attention_backend("triton", tpsim::testing::gpu(), /*page_size=*/1);
  const auto mask_bytes = [&](std::uint32_t window) {
    backend->init_forward_metadata(pass.metadata(false));
    const double plain = backend->forward_extend(layer_of(window)).bytes;
    backend->init_forward_metadata(pass.metadata(true));
    return backend->forward_extend(layer_of(window)).bytes - plain;
  };
  EXPECT_GT(mask_bytes(0), 0);
  EXPECT_GT(mask_bytes(0), mask_bytes(512));
  EXPECT_GT(mask_bytes(512), 0);
}

}  // namespace
}  // namespace tpsim::attention::image_mask_cost_test
