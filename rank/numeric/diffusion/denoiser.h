// Denoising transformers of numeric execution: one file a family (wan.cc), one list (denoiser.cc).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/numeric/diffusion/latent_shape.h"
#include "rank/numeric/diffusion/sequence_ranks.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

struct TextEmbeddings {
  std::uint32_t tokens = 0;
  std::vector<float> rows;        // [tokens, Denoiser::text_size()]
  std::vector<float> pooled;      // [Denoiser::pooled_size()]
  std::vector<float> image = {};  // rows of Denoiser::image_size(), what an image encoder makes of an image
};

class Denoiser {
 public:
  Denoiser() = default;
  Denoiser(const Denoiser&) = delete;
  Denoiser& operator=(const Denoiser&) = delete;
  virtual ~Denoiser() = default;

  virtual std::uint32_t channels() const = 0;  // of latents
  // With those of an image that conditions them, which lie behind them; the same: there is none.
  virtual std::uint32_t input_channels() const { return channels(); }
  virtual std::uint32_t text_size() const = 0;
  // Of the prompt as a whole; 0: there is none.
  virtual std::uint32_t pooled_size() const { return 0; }
  // Of a row of an image encoder's; 0: none is read.
  virtual std::uint32_t image_size() const { return 0; }
  // Whether this much guidance takes a pass without the prompt; else it is an input, or none.
  virtual bool guided(float guidance) const { return guidance > 1; }
  // Tokens of the latents, where the pipeline gives its scheduler sigmas from 1 to 1 / steps; 0: it leaves
  // them to the scheduler.
  virtual std::uint32_t schedule_tokens(const LatentShape&) const { return 0; }
  // The logarithm of the shift of those sigmas, where the pipeline does not leave it to the scheduler.
  virtual std::optional<double> log_shift(const LatentShape&, std::uint32_t /*steps*/) const {
    return std::nullopt;
  }
  // What frames, rows and columns must be multiples of.
  virtual std::array<std::uint32_t, 3> patch() const = 0;
  // `prompt` is what is predicted with it, `other` without; it becomes what guidance makes of both:
  // other + guidance (prompt - other), unless the family has a rule of its own.
  virtual void guide(const LatentShape& shape, float guidance, std::span<const float> other,
                     std::vector<float>& prompt) const;
  // Puts what `condition`, an image's latents, gives of the video in its place; behind `latents` in a pass,
  // they say that it is given.
  virtual void give(const LatentShape&, std::span<const float> /*condition*/,
                    std::vector<float>& /*latents*/) const {}
  // One pass over `latents` [input_channels(), …] of `shape`, which is theirs alone, for each of `texts`,
  // split.cfg of them, of any lengths: what the model predicts for each, of the shape of the latents.
  // Collective, with equal arguments on every rank. Throws UserError for sizes that it cannot take.
  virtual std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                                  float timestep, float guidance,
                                                  std::span<const TextEmbeddings> texts,
                                                  SequenceRanks& ranks) const = 0;
};

struct DenoiserFamily {
  std::string_view class_name;  // _class_name of transformer/config.json
  // For splits of this tp. Throws UserError where a tensor is missing or misshaped, the config asks for what
  // is not computed, or --tp-size does not divide what is cut.
  std::unique_ptr<Denoiser> (*load)(const ConfigReader& config, const TensorSource& source,
                                    std::uint32_t tp_size);
};

// The `load` of a family whose class takes these three.
template <typename Family>
std::unique_ptr<Denoiser> make_denoiser(const ConfigReader& config, const TensorSource& source,
                                        std::uint32_t tp_size) {
  return std::make_unique<Family>(config, source, tp_size);
}

// `config`: transformer/config.json. Throws UserError naming the file for a class that is not computed, and
// as DenoiserFamily::load.
std::unique_ptr<Denoiser> load_denoiser(const ConfigReader& config, const TensorSource& source,
                                        std::uint32_t tp_size);

}  // namespace tpsim::rank
