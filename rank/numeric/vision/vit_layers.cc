#include "rank/numeric/vision/vit_layers.h"

#include <algorithm>
#include <cstddef>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
VitLayers::VitLayers(const VisionConfig& vision, const VitNames& names, const TowerReader& reader,
                     const TowerRanks& ranks) {
  const std::uint32_t computed = vision.computed_layers > 0 ? vision.computed_layers : vision.num_layers;
  for (std::uint32_t i = 0; i < computed; ++i)
    layers_.push_back(read_layer(vision, names, reader, ranks, names.layers + std::to_string(i) + "."));
}

VitLayers::Layer VitLayers::read_layer(const VisionConfig& vision, const VitNames& names,
                                       const TowerReader& reader, const TowerRanks& ranks,
                                       const std::string& at) {
  const std::uint32_t hidden = vision.hidden_size;
  const std::uint32_t dim = vision.head_dim();
  const auto vector = [&](const std::string& name) {
    return name.empty() ? std::vector<float>() : reader.tensor(at + name, {hidden});
  };
  Layer layer;
  layer.norm1 = reader.norm(at + names.norm1, hidden, vision.norm_eps, vision.rms_norm);
  layer.norm2 = reader.norm(at + names.norm2, hidden, vision.norm_eps, vision.rms_norm);
  layer.scale1 = vector(names.scale1);
  layer.scale2 = vector(names.scale2);
  layer.attention.dim = dim;
  layer.attention.q_norm = vector(names.q_norm);
  layer.attention.k_norm = vector(names.k_norm);
  layer.attention.norm_eps = vision.norm_eps;
  layer.attention.o_bias = vector(names.out + ".bias");
  for (const Split& split : ranks.shards()) {
    const Share heads = share_of(vision.num_heads, split);
    const Share own{heads.first * dim, heads.count * dim};
    const std::uint32_t there = own.first < hidden ? std::min(own.count, hidden - own.first) : 0;
    std::vector<OutputSlice> qkv;
    for (std::uint32_t part = 0; part < 3; ++part) {
      if (names.qkv.empty()) {
        const std::string* const separate[] = {&names.q, &names.k, &names.v};
        qkv.push_back({at + *separate[part], hidden, own});
      } else {  // after its part, the rest of a share is zero
        qkv.push_back({at + names.qkv, 3 * hidden, {part * hidden + own.first, there}});
        qkv.push_back({at + names.qkv, 3 * hidden, {3 * hidden, own.count - there}});
      }
    }
    layer.attention.shards.push_back(
        {reader.columns(qkv, {hidden}, vision.qkv_bias), reader.rows(at + names.out, hidden, hidden, own)});
  }
  std::vector<std::string> up = {at + names.fc1};
  if (!names.gate.empty()) up.insert(up.begin(), at + names.gate);
  const std::uint32_t width = vision.mlp_width > 0 ? vision.mlp_width : vision.intermediate_size;
  layer.mlp = reader.mlp(up, at + names.fc2, {hidden, width, hidden}, true, ranks);
  layer.mlp.activation = tower_activation(vision.hidden_act);
  return layer;
}

void VitLayers::forward(std::uint32_t index, float* x, std::span<const std::uint32_t> begins,
                        const TowerAttention::Turn& turn, TowerRanks& ranks) const {
  const Layer& layer = layers_[index];
  const std::uint32_t rows = begins.back();
  const std::size_t count = std::size_t{rows} * layer.norm1.weight.size();
  std::vector<float> normed(count), added(count);
  const auto add_scaled = [&](const std::vector<float>& scale) {
    for (std::size_t i = 0; !scale.empty() && i < count; ++i) added[i] *= scale[i % scale.size()];
    add(x, added.data(), count);
  };
  layer.norm1.apply(x, rows, normed.data(), ranks.pool());
  layer.attention.forward(normed.data(), rows, begins, turn, ranks, added.data());
  add_scaled(layer.scale1);
  layer.norm2.apply(x, rows, normed.data(), ranks.pool());
  layer.mlp.forward(normed.data(), rows, ranks, added.data());
  add_scaled(layer.scale2);
}

void VitLayers::forward(float* x, std::uint32_t tiles, std::uint32_t length, const TowerAttention::Turn& turn,
                        TowerRanks& ranks) const {
  std::vector<std::uint32_t> begins;
  for (std::uint32_t tile = 0; tile <= tiles; ++tile) begins.push_back(tile * length);
  TowerAttention::Turn turn_row;
  if (turn) turn_row = [&](std::uint32_t row, float* head) { turn(row % length, head); };
  for (std::uint32_t i = 0; i < size(); ++i) forward(i, x, begins, turn_row, ranks);
}

}  // namespace tpsim::rank
