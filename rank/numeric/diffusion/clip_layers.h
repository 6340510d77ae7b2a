// The layers that CLIP's text and vision models share.
#pragma once

#include <cstdint>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {

class ClipLayers {
 public:
  // `otherwise`: where the config does not say so. Throws UserError.
  struct Sizes {
    std::uint32_t width, heads, ffn, layers;
  };
  ClipLayers(const ConfigReader& config, const Sizes& otherwise);
  // Tensors encoder.layers.N. of `reader`, the first `count`.
  void read(const TowerReader& reader, std::uint32_t count);

  std::uint32_t width() const { return sizes_.width; }
  std::uint32_t layers() const { return sizes_.layers; }
  float eps() const { return eps_; }
  // Rows of width() through those that were read; causal: each attends to rows up to its own.
  void forward(std::vector<float>& x, bool causal, ThreadPool& pool) const;

 private:
  struct Layer {
    TowerNorm norm1, norm2;
    TowerLinear q, k, v, out, up, down;
  };
  Sizes sizes_;
  float eps_;
  TowerActivation activation_;
  std::vector<Layer> layers_;
};

}  // namespace tpsim::rank
