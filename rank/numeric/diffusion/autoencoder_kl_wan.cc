// AutoencoderKLWan and AutoencoderKLQwenImage of Diffusers 0.42.1, which are one: root mean squares and
// causal convolutions of frames, of which levels make more. Wan 2.2's (TI2V 5B) has residual levels, and of
// each colour a patch of pixels as channels.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/numeric/diffusion/convolutions.h"
#include "rank/numeric/diffusion/image_decoder.h"

namespace tpsim::rank {
namespace {

constexpr float kWanEps = 1e-24F;  // F.normalize's, of a length

std::vector<float> wan_statistics(const ConfigReader& config, const char* key, std::uint32_t channels,
                                  double least) {
  const auto good = [&](const Json& value) { return value.is_number() && value.get<double>() >= least; };
  std::vector<float> out = list_or<float>(config, key, {}, good, "numbers, one a channel of latents");
  if (out.size() != channels)
    throw_user_error("{}: key \"{}\" must be a list of {} numbers, one a channel of latents", config.where(),
                     key, channels);
  return out;
}

// What both ways are read by.
struct WanVae {
  TowerReader reader;

  VolumeNorm norm(const std::string& name, std::uint32_t channels) const {
    return {.weights = {
                .weight = reader.tensor(name + ".gamma", {channels, 1, 1, 1}), .bias = {}, .eps = kWanEps}};
  }
  Convolution convolution(const std::string& name, std::uint32_t inputs, std::uint32_t outputs,
                          std::uint32_t side) const {
    return Convolution(reader, name, inputs, outputs, {side, side, side});
  }
  std::vector<ResidualBlock> blocks(const std::string& at, std::uint32_t count, std::uint32_t inputs,
                                    std::uint32_t outputs) const {
    return read_residual_blocks([this](const auto&... of) { return norm(of...); },
                                [this](const auto&... of) { return convolution(of...); }, at, count, inputs,
                                outputs);
  }
  FrameAttention attention(const std::string& at, std::uint32_t width) const {
    return {.norm = {.weights = {.weight = reader.tensor(at + "norm.gamma", {width, 1, 1}),
                                 .bias = {},
                                 .eps = kWanEps}},
            .qkv = reader.whole(at + "to_qkv", 3 * width, {width, 1, 1}, true),
            .out = reader.whole(at + "proj", width, {width, 1, 1}, true)};
  }
};

// Twice as many channels come out as latents have: their middle, then their spread.
ConvolutionalEncoder read_wan_encoder(const ConfigReader& config, const TensorSource& source,
                                      std::uint32_t latent, std::uint32_t colours) {
  const WanVae vae{TowerReader(source, WeightType::kFp32, {""}, "encoder.conv_in.weight")};
  const std::uint32_t base = config.number_or("base_dim", 96), each = config.number_or("num_res_blocks", 2);
  const std::vector<std::uint32_t> factors = channel_list(config, "dim_mult", {1, 2, 4, 4});
  const std::vector<bool> halved = list_or<bool>(
      config, "temperal_downsample", {false, true, true},
      [](const Json& value) { return value.is_boolean(); }, "true and false");
  const std::uint32_t widest = base * factors.back();
  const std::string middle = "encoder.mid_block.";
  ConvolutionalEncoder out{.in = vae.convolution("encoder.conv_in", colours, base, 3),
                           .levels = {},
                           .middle = vae.blocks(middle, 2, widest, widest),
                           .attention = vae.attention(middle + "attentions.0.", widest),
                           .norm = vae.norm("encoder.norm_out", widest),
                           .out = vae.convolution("encoder.conv_out", widest, 2 * latent, 3),
                           .last = vae.convolution("quant_conv", 2 * latent, 2 * latent, 1)};
  // Layers are counted one behind the other, where levels are not residual.
  const bool residual = config.flag("is_residual", false);
  std::uint32_t before = base, layer = 0;
  const auto next = [&] { return "encoder.down_blocks." + std::to_string(layer++) + "."; };
  for (std::size_t i = 0; i < factors.size(); ++i) {
    ConvolutionalEncoder::Level& level = out.levels.emplace_back();
    const std::uint32_t width = base * factors[i];
    level.residual = residual;
    const bool last = i + 1 == factors.size();
    if (const std::uint32_t made = before * (last ? 1 : halved[i] ? 8 : 4); residual && made % width != 0)
      throw_user_error("{}: key \"dim_mult\": residual levels cannot make {} channels of {}", config.where(),
                       width, before);
    const std::string whole = residual ? next() : "";
    for (std::uint32_t n = 0; n < each; ++n) {
      level.blocks.push_back(read_residual_block(
          [&](const auto&... of) { return vae.norm(of...); },
          [&](const auto&... of) { return vae.convolution(of...); },
          residual ? whole + "resnets." + std::to_string(n) + "." : next(), before, width));
      before = width;
    }
    if (last) continue;
    const std::string at = residual ? whole + "downsampler." : next();
    level.halved = Convolution(vae.reader, at + "resample.1", before, before, {3, 3});
    if (halved[i]) level.frames = Convolution(vae.reader, at + "time_conv", before, before, {3, 1, 1});
  }
  return out;
}

ConvolutionalDecoder read_wan(const ConfigReader& config, const TensorSource& source, std::uint32_t latent,
                              std::uint32_t colours) {
  const bool residual = config.flag("is_residual", false);
  const std::uint32_t base = config.number_or("decoder_base_dim", config.number_or("base_dim", 96));
  const std::vector<std::uint32_t> factors = channel_list(config, "dim_mult", {1, 2, 4, 4});
  constexpr std::uint64_t kMostChannels = 65536;
  if (std::uint64_t{base} * std::ranges::max(factors) > kMostChannels)
    throw_user_error("{}: key \"dim_mult\": {} times {} are more than {} channels", config.where(), base,
                     std::ranges::max(factors), kMostChannels);
  const auto flag = [](const Json& value) { return value.is_boolean(); };
  const std::vector<bool> halved =
      list_or<bool>(config, "temperal_downsample", {false, true, true}, flag, "true and false");
  if (halved.size() + 1 < factors.size())
    throw_user_error("{}: key \"temperal_downsample\" must have one entry less than \"dim_mult\"",
                     config.where());
  const WanVae vae{TowerReader(source, WeightType::kFp32, {""}, "decoder.conv_in.weight")};
  const std::uint32_t widest = base * factors.back(), narrowest = base * factors.front();
  const std::string middle = "decoder.mid_block.";
  ConvolutionalDecoder out{.first = vae.convolution("post_quant_conv", latent, latent, 1),
                           .in = vae.convolution("decoder.conv_in", latent, widest, 3),
                           .middle = vae.blocks(middle, 2, widest, widest),
                           .attention = vae.attention(middle + "attentions.0.", widest),
                           .levels = {},
                           .norm = vae.norm("decoder.norm_out", narrowest),
                           .out = vae.convolution("decoder.conv_out", narrowest, colours, 3)};
  const std::uint32_t each = config.number_or("num_res_blocks", 2);
  std::uint32_t before = widest;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::string at = "decoder.up_blocks." + std::to_string(i) + ".",
                      grow = at + (residual ? "upsampler." : "upsamplers.0.");
    const std::uint32_t width = base * factors[factors.size() - 1 - i];
    ConvolutionalDecoder::Level& level = out.levels.emplace_back();
    level.blocks = vae.blocks(at, each + 1, before, width);
    if (i + 1 == factors.size()) continue;
    if (halved[halved.size() - 1 - i])
      level.frames = Convolution(vae.reader, grow + "time_conv", width, 2 * width, {3, 1, 1});
    level.residual = residual;
    if (residual && 4 * width * (level.frames ? 2 : 1) % before != 0)
      throw_user_error("{}: key \"dim_mult\": residual levels cannot make {} channels of {}", config.where(),
                       width, before);
    before = residual ? width : width / 2;
    level.enlarged = Convolution(vae.reader, grow + "resample.1", width, before, {3, 3});
  }
  return out;
}

class AutoencoderKlWan : public ImageDecoder {
 public:
  AutoencoderKlWan(const ConfigReader& config, const TensorSource& source)
      : channels_(config.number_or("z_dim", 16)),
        // Qwen-Image's has one key for the colours of both ends.
        colours_(config.number_or("out_channels", config.number_or("input_channels", 3))),
        patch_(config.number_or("patch_size", 1)),
        scale_{.scale = wan_statistics(config, "latents_std", channels_, 1e-6),
               .shift = wan_statistics(config, "latents_mean", channels_, -1e6)},
        decoder_(read_wan(config, source, channels_, colours_)) {
    if (patch_ > 16 || colours_ % (patch_ * patch_) != 0)
      throw_user_error("{}: key \"patch_size\" is {}, of which {} channels are no whole number",
                       config.where(), patch_, colours_);
    if (source.has("encoder.conv_in.weight"))
      encoder_ = read_wan_encoder(config, source, channels_, colours_);
  }

  LatentShape pixels(const LatentShape& latents) const override {
    if (latents[0] != channels_)
      throw_user_error("latents of {} channels: the VAE decodes {}", latents[0], channels_);
    const auto [frames, rows, columns] = decoder_.grown({latents[1], latents[2], latents[3]});
    return {colours_ / (patch_ * patch_), frames, rows * patch_, columns * patch_};
  }
  std::vector<float> decode(const LatentShape& shape, std::span<const float> latents,
                            ThreadPool& pool) const override {
    const Volume made = decoder_(channels_last(shape, latents, scale_), pool);
    const std::vector<float> planes = channels_first(made);
    const LatentShape patches = {colours_, made.size[0], made.size[1], made.size[2]};
    std::vector<float> out(planes.size());
    for (std::size_t i = 0; i < planes.size(); ++i)
      out[pixel_of(i, patches)] = std::clamp(planes[i], -1.0F, 1.0F);
    return out;
  }

  std::vector<float> encode(const LatentShape& shape, std::span<const float> pixels,
                            ThreadPool& pool) const override {
    if (!encoder_) return ImageDecoder::encode(shape, pixels, pool);
    const LatentScale none{.scale = std::vector<float>(colours_, 1),
                           .shift = std::vector<float>(colours_, 0)};
    const LatentShape patches = {colours_, shape[1], shape[2] / patch_, shape[3] / patch_};
    std::vector<float> placed(pixels.size());
    for (std::size_t i = 0; i < placed.size(); ++i) placed[i] = pixels[pixel_of(i, patches)];
    std::vector<float> out = channels_first((*encoder_)(channels_last(patches, placed, none), pool));
    out.resize(out.size() / 2);
    const std::size_t each = out.size() / channels_;
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = (out[i] - scale_.shift[i / each]) / scale_.scale[i / each];
    return out;
  }

 private:
  // Where element i of `patches`, whose channels are [colour, column of the patch, row of the patch], lies
  // among pixels.
  std::size_t pixel_of(std::size_t i, const LatentShape& patches) const {
    const std::size_t frames = patches[1], rows = patches[2], columns = patches[3];
    const std::size_t column = i % columns, row = i / columns % rows, frame = i / columns / rows % frames;
    const std::size_t channel = i / columns / rows / frames, colour = channel / patch_ / patch_;
    const std::size_t y = row * patch_ + channel % patch_, x = column * patch_ + channel / patch_ % patch_;
    return ((colour * frames + frame) * rows * patch_ + y) * columns * patch_ + x;
  }

  const std::uint32_t channels_, colours_, patch_;  // colours of a patch's pixels
  const LatentScale scale_;
  const ConvolutionalDecoder decoder_;
  std::optional<ConvolutionalEncoder> encoder_;
};

}  // namespace

extern const ImageDecoderFamily kAutoencoderKlWan;
const ImageDecoderFamily kAutoencoderKlWan = {.class_names = {"AutoencoderKLWan", "AutoencoderKLQwenImage"},
                                              .load = make_image_decoder<AutoencoderKlWan>};

}  // namespace tpsim::rank
