// Decoders of VAEs, computed: one file a family (autoencoder_kl.cc, autoencoder_kl_wan.cc), one list
// (image_decoder.cc). Whole on every rank: how the denoising loop is split is nothing that they see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/config/config_reader.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/diffusion/latent_shape.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class ImageDecoder {
 public:
  ImageDecoder() = default;
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;
  virtual ~ImageDecoder() = default;
  // Colours, frames, rows and columns of what latents of this shape become. Throws UserError for another
  // number of channels, or of frames.
  virtual LatentShape pixels(const LatentShape& latents) const = 0;
  // `latents` as the denoising loop leaves them: their scale and shift are undone here. Pixels as the VAE
  // gives them, about -1 to 1, in pixels(shape).
  virtual std::vector<float> decode(const LatentShape& shape, std::span<const float> latents,
                                    ThreadPool& pool) const = 0;
  // The way back, the likeliest latents of pixels of `shape`. Throws UserError where the VAE's encoder is not
  // computed or not there.
  virtual std::vector<float> encode(const LatentShape& shape, std::span<const float> pixels,
                                    ThreadPool& pool) const;
};

// Key `key`, a list of what `good` holds of; `what` says so. Throws UserError.
template <typename T, typename Good>
std::vector<T> list_or(const ConfigReader& config, const char* key, std::vector<T> otherwise, Good good,
                       std::string_view what) {
  if (!config.has(key)) return otherwise;
  const Json& list = config.json().at(key);
  if (!list.is_array() || list.empty() || !std::ranges::all_of(list, good))
    throw_user_error("{}: key \"{}\" must be a list of {}", config.where(), key, what);
  return list.get<std::vector<T>>();
}
// Channels of levels, or their factors.
std::vector<std::uint32_t> channel_list(const ConfigReader& config, const char* key,
                                        std::vector<std::uint32_t> otherwise);

struct ImageDecoderFamily {
  std::vector<std::string_view> class_names;  // _class_name of vae/config.json
  // Throws UserError where a tensor is missing or misshaped, or naming the key that asks for what is not
  // computed.
  std::unique_ptr<ImageDecoder> (*load)(const ConfigReader& config, const TensorSource& source);
};

// The `load` of a family whose class takes these two.
template <typename Family>
std::unique_ptr<ImageDecoder> make_image_decoder(const ConfigReader& config, const TensorSource& source) {
  return std::make_unique<Family>(config, source);
}

// `config`: vae/config.json. Throws UserError naming the file for a class that is not computed, naming a key
// that is not known, and as ImageDecoderFamily::load.
std::unique_ptr<ImageDecoder> load_image_decoder(const ConfigReader& config, const TensorSource& source);

}  // namespace tpsim::rank
