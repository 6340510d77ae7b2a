// What the encoders are made of: layers x += attention(norm(x)), x += mlp(norm(x)). What the families differ
// in are the names of tensors, norms, positions, which rows attend to each other, and what becomes of the
// rows afterwards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rank/config/vision_config.h"
#include "rank/numeric/vision/tower_layers.h"
#include "rank/numeric/vision/tower_ranks.h"

namespace tpsim::rank {

// Names of a layer's tensors after "PREFIX N."; empty: there is none.
struct VitNames {
  std::string layers = {};  // PREFIX
  std::string norm1 = {}, norm2 = {};
  std::string q = {}, k = {}, v = {}, qkv = {};  // three tensors, or one
  std::string out = {};
  std::string gate = {}, fc1 = {}, fc2 = {};
  std::string scale1 = {}, scale2 = {};  // of what is added to x
  std::string q_norm = {}, k_norm = {};  // root mean square, over all heads
};

class VitLayers {
 public:
  // Throws UserError where a tensor is missing or misshaped.
  VitLayers(const VisionConfig& vision, const VitNames& names, const TowerReader& reader,
            const TowerRanks& ranks);

  std::uint32_t size() const { return static_cast<std::uint32_t>(layers_.size()); }
  // x [begins.back(), hidden_size], in place, through layer `index`. `begins`: of attend_segments().
  void forward(std::uint32_t index, float* x, std::span<const std::uint32_t> begins,
               const TowerAttention::Turn& turn, TowerRanks& ranks) const;
  // x [tiles x length, hidden_size], in place, through all layers; each tile attends to itself alone. `turn`
  // is called with a row of its tile, and may be empty.
  void forward(float* x, std::uint32_t tiles, std::uint32_t length, const TowerAttention::Turn& turn,
               TowerRanks& ranks) const;

 private:
  struct Layer {
    TowerNorm norm1, norm2;
    TowerAttention attention;
    TowerMlp mlp;
    std::vector<float> scale1, scale2;
  };
  static Layer read_layer(const VisionConfig& vision, const VitNames& names, const TowerReader& reader,
                          const TowerRanks& ranks, const std::string& at);

  std::vector<Layer> layers_;
};

}  // namespace tpsim::rank
