// VAEs by their convolutions, layer by layer as Diffusers' classes have them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/diffusion/operators.h"

namespace tpsim::rank {

struct VaeConfig {
  enum class Kind : std::uint8_t { k2d, kWan, kHunyuan, kLtx };
  Kind kind{};
  std::vector<std::uint64_t> encoder, decoder;  // channels by level, the finest first
  std::uint32_t encoder_layers = 2, decoder_layers = 3;
  std::uint64_t latent = 16, colours = 3;
  std::uint32_t patch = 1;     // pixels along a side that are channels
  std::vector<bool> temporal;  // levels whose downsampling halves frames
  bool residual = false;       // Wan 2.2's blocks
  std::uint32_t spatial_stride = 8, temporal_stride = 1;
  // Latents of a GPU's strip of rows from which the GPUs of a request share decoding so; 0: they never do.
  std::uint32_t strip_latents = 0;
  bool strip_encoder = false;  // the GPUs of a sequence share encoding so
  bool shares_tiles = false;   // they share the tiles that decoding goes by
  bool channels_last = false;  // weights of convolutions have channels last
  bool video = true;           // of kWan: whether it is for more than one frame
};

bool is_vae(const std::string& class_name);
// Throws UserError naming the file and the key.
VaeConfig read_vae(const std::string& class_name, const ConfigReader& config);

// Shape of the latents of one sample.
struct LatentShape {
  double frames = 1, height = 0, width = 0;
};
LatentShape latent_shape(const VaeConfig& vae, std::uint32_t frames, double width, double height);
void write_vae_decoder(const VaeConfig& vae, double batch, const LatentShape& latents, OperatorList& list);
void write_vae_encoder(const VaeConfig& vae, double batch, const LatentShape& latents, OperatorList& list);

// How a VAE runs: bytes an element (2 or 4), convolutions with channels last, torch.autocast of fp32 weights,
// a strip of rows on each GPU.
struct VaeRun {
  bool decode = true;
  double bytes = 2;
  bool channels_last = false, autocast = false, strips = false;
};
// Bytes of a GPU's memory beside weights.
double vae_live_bytes(const VaeConfig& vae, const LatentShape& latents, const VaeRun& run);

}  // namespace tpsim::rank
