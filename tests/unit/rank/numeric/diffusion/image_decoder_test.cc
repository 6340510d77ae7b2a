// Decoders of VAEs (their pixels are compared with Diffusers' in tests/integration/numeric/pipeline_test.py).
#include "rank/numeric/diffusion/image_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/base/error.h"
#include "rank/numeric/diffusion/seeded_tensor.h"
#include "rank/weights/dummy_weights.h"

namespace tpsim::rank {
namespace {

const Json kWanConfig = {{"_class_name", "AutoencoderKLWan"},
                         {"base_dim", 4},
                         {"z_dim", 2},
                         {"dim_mult", {1, 2, 2}},
                         {"num_res_blocks", 1},
                         {"temperal_downsample", {true, true}},
                         {"latents_mean", {0.5, -0.25}},
                         {"latents_std", {1.5, 2.0}}};

std::unique_ptr<ImageDecoder> decoder(const Json& config) {
  return load_image_decoder(ConfigReader(config, "vae"), DummyWeights(/*seed=*/1));
}

// What lets Diffusers decode frame by frame: later latents change no earlier pixel, and do change their own.
TEST(ImageDecoder, FramesAreThoseOfAShorterVideo) {
  const auto vae = decoder(kWanConfig);
  ThreadPool pool(1);
  const LatentShape whole = {2, 4, 2, 3};
  const std::vector<float> latents = seeded_tensor("latents", 1, elements(whole));
  const std::vector<float> all = vae->decode(whole, latents, pool);
  EXPECT_EQ(vae->pixels(whole), (LatentShape{3, 13, 8, 12}));
  ASSERT_EQ(all.size(), elements(vae->pixels(whole)));
  for (std::uint32_t frames = 1; frames < 4; ++frames) {
    const std::size_t plane = 6;
    std::vector<float> first(latents.begin(), latents.begin() + frames * plane);
    first.insert(first.end(), latents.begin() + 4 * plane, latents.begin() + (4 + frames) * plane);
    const LatentShape shape = {2, frames, 2, 3}, pixels = vae->pixels(shape);
    const std::vector<float> some = vae->decode(shape, first, pool);
    ASSERT_EQ(pixels[1], 4 * frames - 3);
    const std::size_t frame = std::size_t{pixels[2]} * pixels[3];
    for (std::size_t colour = 0; colour < 3; ++colour) {
      EXPECT_TRUE(std::equal(some.begin() + colour * pixels[1] * frame,
                             some.begin() + (colour + 1) * pixels[1] * frame,
                             all.begin() + colour * 13 * frame));
    }
    EXPECT_NE(all[(4 * frames - 4) * frame], all[(4 * frames - 3) * frame]);
  }
}

TEST(ImageDecoder, OthersAreRefused) {
  EXPECT_THROW(decoder({{"_class_name", "AutoencoderKLLTXVideo"}}), UserError);
  EXPECT_THROW(decoder(kWanConfig)->pixels({3, 1, 2, 2}), UserError);
  Json odd = kWanConfig;
  odd.update({{"is_residual", true}, {"dim_mult", {1, 1, 5}}});
  EXPECT_THROW(decoder(odd), UserError);  // 5 channels to 1, through 8 places
  const Json image = {{"_class_name", "AutoencoderKL"}, {"block_out_channels", {8}}, {"norm_num_groups", 4}};
  EXPECT_EQ(decoder(image)->pixels({4, 1, 6, 5}), (LatentShape{3, 1, 6, 5}));
  EXPECT_THROW(decoder(image)->pixels({4, 2, 6, 5}), UserError);  // a video
}

}  // namespace
}  // namespace tpsim::rank
