// What Wan 2.1's image to video reads of an image beside its latents: CLIP's vision model, before its last
// layer. Whole on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/diffusion/clip_layers.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class ImageEmbedder {
 public:
  // `config`: image_encoder/config.json, of clip_vision_model. Throws UserError naming the file for another,
  // and where a tensor is missing or misshaped.
  ImageEmbedder(const ConfigReader& config, const TensorSource& source);
  // Of an image's rows and columns.
  std::uint32_t side() const { return side_; }
  std::uint32_t width() const { return layers_.width(); }
  // `pixels` [3, side(), side()] as the processor leaves them: rows of width(), of the class and of patches.
  std::vector<float> rows(std::span<const float> pixels, ThreadPool& pool) const;

 private:
  ClipLayers layers_;
  std::uint32_t side_, patch_;
  TowerLinear patches_;
  std::vector<float> class_, places_;
  TowerNorm norm_;
};

}  // namespace tpsim::rank
