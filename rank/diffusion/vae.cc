#include "rank/diffusion/vae.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tpsim::rank {
namespace {

using VaeKind = VaeConfig::Kind;

struct VaeRow {
  std::string_view class_name;
  VaeKind kind;
  // auto_parallel_decode_prefers_spatial_shard() and use_parallel_encode of SGLang's configs/models/vaes.
  std::uint32_t strip_latents = 0;
  bool strip_encoder = false;
  bool shares_tiles = false;   // parallel_decode_mode "tiled" of the pipeline's configuration
  bool channels_last = false;  // _should_use_channels_last_3d() of SGLang's component_loaders/vae_loader.py
};
constexpr VaeRow kVaes[] = {
    {"AutoencoderKL", VaeKind::k2d},
    {"AutoencoderKLFlux2", VaeKind::k2d},
    {"AutoencoderKLWan", VaeKind::kWan, 4096, true, false, true},
    {"AutoencoderKLQwenImage", VaeKind::kWan, 0, false, false, true},
    {"AutoencoderKLHunyuanVideo", VaeKind::kHunyuan, 0, false, true},
    {"AutoencoderKLLTX2Video", VaeKind::kLtx, 1024},
};

const VaeRow* find_vae(std::string_view name) {
  const auto* const row = std::ranges::find(kVaes, name, &VaeRow::class_name);
  return row == std::end(kVaes) ? nullptr : row;
}

std::vector<std::uint64_t> channels(const ConfigReader& config, const char* key,
                                    std::vector<std::uint64_t> otherwise) {
  if (!config.has(key)) return otherwise;
  const Json& list = config.json().at(key);
  const auto good = [](const Json& value) {
    return value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 65536;
  };
  if (!list.is_array() || list.empty() || list.size() > 16 || !std::ranges::all_of(list, good))
    throw_user_error("{}: key \"{}\" must be a list of numbers of channels", config.where(), key);
  return list.get<std::vector<std::uint64_t>>();
}

std::vector<bool> flags(const ConfigReader& config, const char* key, std::vector<bool> otherwise) {
  if (!config.has(key)) return otherwise;
  const Json& list = config.json().at(key);
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& value) { return value.is_boolean(); }))
    throw_user_error("{}: key \"{}\" must be a list of true and false", config.where(), key);
  return list.get<std::vector<bool>>();
}

// Kernels between convolutions: how often they read or write each element.
constexpr double kNormAndActivation = 5, kResidual = 3;

// Writes layers of one VAE over frames x height x width positions.
class Writer {
 public:
  Writer(OperatorList& list, double batch, const LatentShape& shape, std::uint32_t time_kernel)
      : list_(list), batch_(batch), at_(shape), time_(time_kernel) {}

  double positions() const { return batch_ * at_.frames * at_.height * at_.width; }
  void scale(double frames, double side) {
    at_.frames = frames;
    at_.height *= side;
    at_.width *= side;
  }
  const LatentShape& at() const { return at_; }
  void convolution(std::uint64_t in, std::uint64_t out, std::uint64_t kernel) {
    list_.convolution(positions(), in, kernel, out);
  }
  // 3 x 3, and of video 3 frames.
  void convolution(std::uint64_t in, std::uint64_t out) { convolution(in, out, 9 * std::uint64_t{time_}); }
  void resnet(std::uint64_t in, std::uint64_t out, double times = 1) {
    const double p = positions();
    const std::uint64_t kernel = 9 * std::uint64_t{time_};
    list_.convolution(p, in, kernel, out, times);
    list_.convolution(p, out, kernel, out, times);
    if (in != out) list_.convolution(p, in, 1, out, times);
    list_.elementwise(kNormAndActivation * p * static_cast<double>(in), times);
    list_.elementwise(kNormAndActivation * p * static_cast<double>(out), times);
    list_.elementwise(kResidual * p * static_cast<double>(out), times);
    list_.weights(2.0 * static_cast<double>(in + out) * times);
  }
  // One head over the positions of a frame, or of all.
  void attention(std::uint64_t width, bool frames) {
    const double tokens = at_.height * at_.width * (frames ? at_.frames : 1);
    list_.product(positions(), width, width, 4);
    list_.self_attention(tokens, 0, 1, static_cast<std::uint32_t>(width), frames ? 1 : at_.frames, false);
    list_.elementwise(8 * positions() * static_cast<double>(width), 1);
  }
  void elementwise(std::uint64_t width, double times) {
    list_.elementwise(times * positions() * static_cast<double>(width), 1);
  }

 private:
  OperatorList& list_;
  double batch_;
  LatentShape at_;
  std::uint32_t time_;
};

// The decoder's first frame comes alone; each later latent makes `2`.
double doubled(double frames) { return 2 * frames - 1; }
double halved(double frames) { return (frames + 1) / 2; }

void decode_wan(const VaeConfig& vae, Writer& w) {
  const auto& c = vae.decoder;
  const std::size_t levels = c.size();
  w.convolution(vae.latent, vae.latent, 1);
  w.convolution(vae.latent, c.back());
  w.resnet(c.back(), c.back(), 2);
  w.attention(c.back(), false);
  std::uint64_t in = c.back();
  for (std::size_t i = 0; i < levels; ++i) {
    const std::size_t level = levels - 1 - i;
    const std::uint64_t out = c[level];
    w.resnet(in, out);
    w.resnet(out, out, vae.decoder_layers - 1);
    if (level == 0) break;
    if (vae.temporal[level - 1]) {
      w.convolution(out, 2 * out, 3);
      w.scale(doubled(w.at().frames), 1);
    }
    w.scale(w.at().frames, 2);
    w.elementwise(out, 3);  // upsampled
    in = vae.residual ? out : out / 2;
    w.convolution(out, in, 9);
    if (vae.residual) w.elementwise(out, 4);
  }
  w.elementwise(c.front(), kNormAndActivation);
  w.convolution(c.front(), vae.colours);
}

void encode_wan(const VaeConfig& vae, Writer& w) {
  const auto& c = vae.encoder;
  double time = 1;
  for (const bool halves : vae.temporal) time *= halves ? 2 : 1;
  w.scale(time * (w.at().frames - 1) + 1, static_cast<double>(1U << (c.size() - 1)));
  w.convolution(vae.colours, c.front());
  std::uint64_t in = c.front();
  for (std::size_t level = 0; level < c.size(); ++level) {
    w.resnet(in, c[level]);
    w.resnet(c[level], c[level], vae.encoder_layers - 1);
    in = c[level];
    if (level + 1 == c.size()) break;
    w.scale(w.at().frames, 0.5);
    w.convolution(in, in, 9);
    if (!vae.temporal[level]) continue;
    w.scale(halved(w.at().frames), 1);
    w.convolution(in, in, 3);
  }
  w.resnet(in, in, 2);
  w.attention(in, false);
  w.convolution(in, 2 * vae.latent);
  w.convolution(2 * vae.latent, 2 * vae.latent, 1);
}

void decode_2d(const VaeConfig& vae, Writer& w, bool video) {
  const auto& c = vae.decoder;
  const std::size_t levels = c.size();
  w.convolution(vae.latent, c.back());
  w.resnet(c.back(), c.back(), 2);
  w.attention(c.back(), video);
  std::uint64_t in = c.back();
  for (std::size_t i = 0; i < levels; ++i) {
    const std::uint64_t out = c[levels - 1 - i];
    w.resnet(in, out);
    w.resnet(out, out, vae.decoder_layers - 1);
    in = out;
    if (i + 1 == levels) break;
    // HunyuanVideo doubles frames in the last levels that double sides.
    const std::size_t doublings = vae.temporal_stride == 4 ? 2 : vae.temporal_stride == 2 ? 1 : 0;
    if (video && i + 1 + doublings >= levels) w.scale(doubled(w.at().frames), 1);
    w.scale(w.at().frames, 2);
    w.elementwise(out, 3);
    w.convolution(out, out);
  }
  w.elementwise(c.front(), kNormAndActivation);
  w.convolution(c.front(), vae.colours);
}

void encode_2d(const VaeConfig& vae, Writer& w, bool video) {
  const auto& c = vae.encoder;
  const double frames = video ? vae.temporal_stride * (w.at().frames - 1) + 1 : 1;
  w.scale(frames, static_cast<double>(1U << (c.size() - 1)));
  w.convolution(vae.colours, c.front());
  std::uint64_t in = c.front();
  for (std::size_t level = 0; level < c.size(); ++level) {
    w.resnet(in, c[level]);
    w.resnet(c[level], c[level], vae.encoder_layers - 1);
    in = c[level];
    if (level + 1 == c.size()) break;
    w.scale(video && level >= 1 ? halved(w.at().frames) : w.at().frames, 0.5);
    w.convolution(in, in);
  }
  w.resnet(in, in, 2);
  w.attention(in, video);
  w.convolution(in, 2 * vae.latent);
}

// Three doublings of frames and sides by convolutions whose outputs are unfolded; patches of 4 x 4 pixels.
void decode_ltx(const VaeConfig& vae, Writer& w) {
  const auto& c = vae.decoder;
  w.convolution(vae.latent, c.back());
  w.resnet(c.back(), c.back(), vae.decoder_layers);
  std::uint64_t in = c.back();
  for (std::size_t i = 0; i < c.size(); ++i) {
    w.convolution(in, 4 * in);
    w.scale(doubled(w.at().frames), 2);
    in /= 2;
    w.elementwise(in, 6);
    w.resnet(in, in, vae.decoder_layers);
  }
  w.convolution(in, vae.colours);
}

void encode_ltx(const VaeConfig& vae, Writer& w) {
  w.scale(8 * (w.at().frames - 1) + 1, 8);
  w.convolution(vae.colours, vae.encoder.front());
  for (std::size_t level = 0; level < vae.encoder.size(); ++level) {
    w.resnet(vae.encoder[level], vae.encoder[level], 4);
    if (level + 1 == vae.encoder.size()) break;
    w.scale(level == 0 ? w.at().frames : halved(w.at().frames), 0.5);
    w.convolution(vae.encoder[level], vae.encoder[level + 1]);
  }
  w.convolution(vae.encoder.back(), vae.latent + 1);
}

}  // namespace

bool is_vae(const std::string& class_name) { return find_vae(class_name) != nullptr; }

VaeConfig read_vae(const std::string& class_name, const ConfigReader& config) {
  const VaeRow* const row = find_vae(class_name);
  if (row == nullptr) throw_user_error("{}: no VAE {}", config.where(), class_name);
  VaeConfig vae;
  vae.kind = row->kind;
  vae.strip_latents = row->strip_latents;
  vae.strip_encoder = row->strip_encoder;
  vae.shares_tiles = row->shares_tiles;
  vae.channels_last = row->channels_last;
  vae.video = class_name != "AutoencoderKLQwenImage";
  switch (vae.kind) {
    case VaeKind::k2d:
    case VaeKind::kHunyuan:
      vae.encoder = vae.decoder = channels(config, "block_out_channels", {128, 256, 512, 512});
      vae.decoder = channels(config, "decoder_block_out_channels", vae.decoder);
      vae.encoder_layers = config.number_or("layers_per_block", 2);
      vae.decoder_layers = vae.encoder_layers + 1;
      vae.latent = config.number_or("latent_channels", 16);
      vae.spatial_stride = 1U << (vae.decoder.size() - 1);
      if (vae.kind == VaeKind::kHunyuan)
        vae.temporal_stride = config.number_or("temporal_compression_ratio", 4);
      break;
    case VaeKind::kWan: {
      const std::uint64_t base = config.number_or("base_dim", 96);
      const std::uint64_t decoder_base =
          config.number_or("decoder_base_dim", static_cast<std::uint32_t>(base));
      for (const std::uint64_t times : channels(config, "dim_mult", {1, 2, 4, 4})) {
        vae.encoder.push_back(base * times);
        vae.decoder.push_back(decoder_base * times);
      }
      vae.encoder_layers = config.number_or("num_res_blocks", 2);
      vae.decoder_layers = vae.encoder_layers + 1;
      vae.latent = config.number_or("z_dim", 16);
      vae.residual = config.flag("is_residual", false);
      vae.patch = config.number_or("patch_size", 1);
      vae.colours = std::uint64_t{3} * vae.patch * vae.patch;
      vae.temporal = flags(config, "temperal_downsample", {false, true, true});
      if (vae.temporal.size() + 1 != vae.decoder.size())
        throw_user_error("{}: key \"temperal_downsample\" must have one entry less than \"dim_mult\"",
                         config.where());
      vae.spatial_stride = (1U << (vae.decoder.size() - 1)) * vae.patch;
      for (const bool halves : vae.temporal) vae.temporal_stride *= halves ? 2 : 1;
      break;
    }
    case VaeKind::kLtx:
      vae.encoder = channels(config, "block_out_channels", {256, 512, 1024, 2048});
      vae.decoder = channels(config, "decoder_block_out_channels", {256, 512, 1024});
      vae.decoder_layers = 5;
      vae.latent = config.number_or("latent_channels", 128);
      vae.patch = config.number_or("patch_size", 4);
      vae.colours = std::uint64_t{3} * vae.patch * vae.patch;
      vae.spatial_stride = 32;
      vae.temporal_stride = 8;
      break;
  }
  return vae;
}

LatentShape latent_shape(const VaeConfig& vae, std::uint32_t frames, double width, double height) {
  const double side = vae.spatial_stride;
  const std::uint32_t coded = (frames - 1) / vae.temporal_stride + 1;
  return {.frames = static_cast<double>(coded),
          .height = std::max(1.0, std::floor(height / side)),
          .width = std::max(1.0, std::floor(width / side))};
}

void write_vae_decoder(const VaeConfig& vae, double batch, const LatentShape& latents, OperatorList& list) {
  Writer w(list, batch, latents, vae.kind == VaeKind::k2d ? 1 : 3);
  switch (vae.kind) {
    case VaeKind::k2d:
    case VaeKind::kHunyuan:
      return decode_2d(vae, w, vae.kind == VaeKind::kHunyuan);
    case VaeKind::kWan:
      return decode_wan(vae, w);
    case VaeKind::kLtx:
      return decode_ltx(vae, w);
  }
}

void write_vae_encoder(const VaeConfig& vae, double batch, const LatentShape& latents, OperatorList& list) {
  Writer w(list, batch, latents, vae.kind == VaeKind::k2d ? 1 : 3);
  switch (vae.kind) {
    case VaeKind::k2d:
    case VaeKind::kHunyuan:
      return encode_2d(vae, w, vae.kind == VaeKind::kHunyuan);
    case VaeKind::kWan:
      return encode_wan(vae, w);
    case VaeKind::kLtx:
      return encode_ltx(vae, w);
  }
}

double vae_live_bytes(const VaeConfig& vae, const LatentShape& latents, const VaeRun& run) {
  // 2D VAEs and those that see all frames at once hold so many times their largest activation, by peak_gb of
  // tests/calibration/measured/h100-sxm_diffusion.json less the weights. Wan's goes through the frames of one
  // latent after the other, and holds so many of a frame's and so many more of each: what its class in SGLang
  // 0.5.23 allocates, counted on a CPU with PyTorch's fake tensors. Where convolutions have channels first,
  // cuDNN turns inputs and outputs in its workspace; so counted, it is what was measured on H100s and H200s
  // with either layout (h100-sxm_vae.json): decoding within 0.3 % on one GPU and 3 % on two, encoding 2 to 4
  // % over. Autocast holds fp32 beside 16 bit, for norms.
  constexpr double k2d = 6.4, kAllFrames = 9, kAllFramesAutocast = 11.9;
  struct Held {
    double caches, frame;
    double strips = 1;  // times as much in a strip of rows as its part of all of them
  };
  constexpr Held kEncoded{.caches = 10.9, .frame = 8.7, .strips = 1.13},
      kDecoded{.caches = 10.9, .frame = 12.4}, kEncodedLast{.caches = 9.1, .frame = 7.6},
      kDecodedLast{.caches = 22.3, .frame = 7.73, .strips = 0.935},
      kDecodedResidual{.caches = 15.1, .frame = 7.71}, kAutocast{.caches = 48.4, .frame = 10.73},
      kImage{.caches = 10.3, .frame = 7.7};
  const std::vector<std::uint64_t>& c = run.decode ? vae.decoder : vae.encoder;
  const double side = vae.spatial_stride / static_cast<double>(vae.patch);
  // The first block of the finest level comes from the one before.
  const bool narrows = run.decode && c.size() > 1 && (vae.kind != VaeKind::kWan || vae.residual);
  const double width =
      static_cast<double>(narrows ? (c[0] + c[1]) / 2 : c[0]) / (vae.kind == VaeKind::kLtx ? 2 : 1);
  const double frame = latents.height * side * latents.width * side * width * run.bytes;
  const double frames = vae.temporal_stride * (latents.frames - 1) + 1;
  switch (vae.kind) {
    case VaeKind::k2d:
      return k2d * frame;
    case VaeKind::kHunyuan:
    case VaeKind::kLtx:
      return (run.autocast ? kAllFramesAutocast : kAllFrames) * frame * frames;
    case VaeKind::kWan:
      break;
  }
  const Held& held = !run.decode          ? (run.channels_last ? kEncodedLast : kEncoded)
                     : !run.channels_last ? kDecoded
                     : !vae.video         ? kImage
                     : run.autocast       ? kAutocast
                     : vae.residual       ? kDecodedResidual
                                          : kDecodedLast;
  return (run.strips ? held.strips : 1) * frame *
         (held.caches + held.frame * std::min<double>(frames, vae.temporal_stride));
}

}  // namespace tpsim::rank
