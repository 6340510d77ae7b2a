// AutoencoderKL of Diffusers 0.42.1 (FLUX.1, Z-Image, Stable Diffusion 3) and AutoencoderKLFlux2, their
// decoder, which is one: group norms and convolutions of one frame.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/numeric/diffusion/convolutions.h"
#include "rank/numeric/diffusion/image_decoder.h"

namespace tpsim::rank {
namespace {

constexpr float kKlEps = 1e-6F;

bool is_flux2(const ConfigReader& config) { return config.text("_class_name", "") == "AutoencoderKLFlux2"; }

std::uint32_t latent_channels(const ConfigReader& config) {
  return config.number_or("latent_channels", is_flux2(config) ? 32 : 4);
}

void check_kl(const ConfigReader& config) {
  if (config.text("act_fn", "silu") != "silu")
    throw_user_error("{}: key \"act_fn\" is \"{}\", which is not computed; \"silu\" is", config.where(),
                     config.text("act_fn", ""));
  for (const char* const key : {"latents_mean", "latents_std"}) {
    if (config.has(key))
      throw_user_error("{}: key \"{}\" is given, which is not computed of an AutoencoderKL", config.where(),
                       key);
  }
  const auto good = [](const Json& value) { return value == "UpDecoderBlock2D"; };
  list_or<std::string>(config, "up_block_types", {}, good, "UpDecoderBlock2D: no other block is computed");
}

ConvolutionalDecoder read_kl(const ConfigReader& config, const TensorSource& source) {
  check_kl(config);
  std::vector<std::uint32_t> widths = channel_list(config, "block_out_channels", {64});
  widths = channel_list(config, "decoder_block_out_channels", widths);
  const std::uint32_t latent = latent_channels(config), widest = widths.back();
  const std::uint32_t groups = config.number_or("norm_num_groups", 32);
  const TowerReader reader(source, WeightType::kFp32, {""}, "decoder.conv_in.weight");
  const auto norm = [&](const std::string& name, std::uint32_t channels) {
    if (channels % groups != 0)
      throw_user_error("{}: key \"norm_num_groups\" is {}, which does not divide {} channels", config.where(),
                       groups, channels);
    return VolumeNorm{.groups = groups, .weights = reader.norm(name, channels, kKlEps)};
  };
  const auto convolution = [&](const std::string& name, std::uint32_t inputs, std::uint32_t outputs,
                               std::uint32_t side) {
    return Convolution(reader, name, inputs, outputs, {side, side});
  };
  const auto blocks = [&](const std::string& at, std::uint32_t count, std::uint32_t inputs,
                          std::uint32_t outputs) {
    return read_residual_blocks(norm, convolution, at, count, inputs, outputs);
  };
  const std::string middle = "decoder.mid_block.";
  ConvolutionalDecoder out{
      .first = {},
      .in = convolution("decoder.conv_in", latent, widest, 3),
      .middle = blocks(middle, 2, widest, widest),
      .attention = {},
      .levels = {},
      .norm = norm("decoder.conv_norm_out", widths.front()),
      .out = convolution("decoder.conv_out", widths.front(), config.number_or("out_channels", 3), 3)};
  if (config.flag("use_post_quant_conv", true)) out.first = convolution("post_quant_conv", latent, latent, 1);
  if (config.flag("mid_block_add_attention", true)) {
    const std::string at = middle + "attentions.0.";
    std::vector<OutputSlice> heads;
    for (const char* const name : {"to_q", "to_k", "to_v"}) heads.push_back({at + name, widest, {0, widest}});
    out.attention = {.norm = norm(at + "group_norm", widest),
                     .qkv = reader.columns(heads, {widest}, /*bias=*/true),
                     .out = reader.whole(at + "to_out.0", widest, {widest}, /*bias=*/true)};
  }
  const std::uint32_t each = config.number_or("layers_per_block", is_flux2(config) ? 2 : 1);
  std::uint32_t before = widest;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const std::string at = "decoder.up_blocks." + std::to_string(i) + ".";
    const std::uint32_t width = widths[widths.size() - 1 - i];
    ConvolutionalDecoder::Level& level = out.levels.emplace_back();
    level.blocks = blocks(at, each + 1, before, width);
    before = width;
    if (i + 1 < widths.size()) level.enlarged = convolution(at + "upsamplers.0.conv", width, width, 3);
  }
  return out;
}

// FLUX.2 has no number for all latents but a mean and a variance of each channel and place in a 2 x 2 patch:
// those of a batch norm (pipelines/flux2/pipeline_flux2.py).
LatentScale read_scale(const ConfigReader& config, const TensorSource& source, std::uint32_t latent) {
  if (!is_flux2(config))
    return {
        .scale = std::vector<float>(
            latent, static_cast<float>(1 / config.real("scaling_factor", 0.18215, 1e-6, 1e6))),
        .shift = std::vector<float>(latent, static_cast<float>(config.real("shift_factor", 0, -1e6, 1e6)))};
  list_or<std::uint32_t>(
      config, "patch_size", {}, [](const Json& value) { return value == 2; },
      "2 and 2: no other patch is computed");
  const double eps = config.real("batch_norm_eps", 1e-4, 0, 1);
  const TowerReader reader(source, WeightType::kFp32, {""}, "bn.running_mean");
  LatentScale out{.scale = reader.tensor("bn.running_var", {std::uint64_t{4} * latent}),
                  .shift = reader.tensor("bn.running_mean", {std::uint64_t{4} * latent}),
                  .patch = 2};
  // Variances are not below 0 but where weights are made up.
  for (float& value : out.scale) value = static_cast<float>(std::sqrt(std::max(value, 0.0F) + eps));
  return out;
}

class AutoencoderKl : public ImageDecoder {
 public:
  AutoencoderKl(const ConfigReader& config, const TensorSource& source)
      : channels_(latent_channels(config)),
        colours_(config.number_or("out_channels", 3)),
        scale_(read_scale(config, source, channels_)),
        decoder_(read_kl(config, source)) {}

  LatentShape pixels(const LatentShape& latents) const override {
    if (latents[0] != channels_ || latents[1] != 1)
      throw_user_error("latents of {} channels and {} frames: the VAE decodes {} and 1", latents[0],
                       latents[1], channels_);
    const auto [frames, rows, columns] = decoder_.grown({latents[1], latents[2], latents[3]});
    return {colours_, frames, rows, columns};
  }
  std::vector<float> decode(const LatentShape& shape, std::span<const float> latents,
                            ThreadPool& pool) const override {
    return channels_first(decoder_(channels_last(shape, latents, scale_), pool));
  }

 private:
  const std::uint32_t channels_, colours_;
  const LatentScale scale_;
  const ConvolutionalDecoder decoder_;
};

}  // namespace

extern const ImageDecoderFamily kAutoencoderKl;
const ImageDecoderFamily kAutoencoderKl = {.class_names = {"AutoencoderKL", "AutoencoderKLFlux2"},
                                           .load = make_image_decoder<AutoencoderKl>};

}  // namespace tpsim::rank
