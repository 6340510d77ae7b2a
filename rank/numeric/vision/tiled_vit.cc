#include "rank/numeric/vision/tiled_vit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

TowerNorm read_norm(const TowerReader& reader, const std::string& name, const TiledVitConfig& config) {
  TowerNorm norm;
  norm.eps = config.eps;
  norm.weight = reader.tensor(name + ".weight", {config.hidden_size});
  if (!config.rms_norm) norm.bias = reader.tensor(name + ".bias", {config.hidden_size});
  return norm;
}

}  // namespace

std::vector<float> square_patches(const ImagePixels& pixels, std::uint32_t patch) {
  const std::uint32_t rows = pixels.height / patch;
  const std::uint32_t columns = pixels.width / patch;
  const std::size_t size = std::size_t{3} * patch * patch;
  std::vector<float> out(size * pixels.tiles * rows * columns);
  float* to = out.data();
  for (std::uint32_t tile = 0; tile < pixels.tiles; ++tile) {
    for (std::uint32_t place = 0; place < rows * columns; ++place) {
      const std::size_t corner =
          std::size_t{place / columns} * patch * pixels.width + std::size_t{place % columns} * patch;
      for (std::uint32_t channel = 0; channel < 3; ++channel) {
        const float* const plane = pixels.plane(tile, channel) + corner;
        for (std::uint32_t y = 0; y < patch; ++y, to += patch)
          std::memcpy(to, plane + std::size_t{y} * pixels.width, patch * sizeof(float));
      }
    }
  }
  return out;
}

std::vector<float> merge_squares(const float* x, std::uint32_t tiles, std::uint32_t side, std::uint32_t merge,
                                 std::uint32_t size, bool transposed) {
  const std::uint32_t merged = side / merge;
  std::vector<float> out(std::size_t{tiles} * merged * merged * merge * merge * size);
  float* to = out.data();
  for (std::uint32_t tile = 0; tile < tiles; ++tile) {
    for (std::uint32_t place = 0; place < merged * merged; ++place) {
      const std::uint32_t row = transposed ? place % merged : place / merged;
      const std::uint32_t column = transposed ? place / merged : place % merged;
      for (std::uint32_t y = 0; y < merge; ++y) {
        const std::size_t from =
            (std::size_t{tile} * side + row * merge + y) * side + std::size_t{column} * merge;
        std::memcpy(to, x + from * size, std::size_t{merge} * size * sizeof(float));
        to += std::size_t{merge} * size;
      }
    }
  }
  return out;
}

void TowerNorm::apply(const float* x, std::uint32_t rows, float* out, ThreadPool& pool) const {
  const auto size = static_cast<std::uint32_t>(weight.size());
  pool.parallel_for(rows, [&](std::uint32_t r, std::uint32_t) {
    const std::size_t at = std::size_t{r} * size;
    if (bias.empty()) {
      rank::rms_norm(x + at, size, weight.data(), 0, eps, out + at);
    } else {
      layer_norm(x + at, size, weight.data(), bias.data(), eps, out + at);
    }
  });
}

TiledVit::TiledVit(const TiledVitConfig& config, const TiledVitNames& names, const TowerReader& reader,
                   const TowerRanks& ranks)
    : config_(config) {
  for (std::uint32_t i = 0; i < config_.num_layers; ++i)
    layers_.push_back(read_layer(names, reader, ranks, names.layers + std::to_string(i) + "."));
}

TiledVit::Layer TiledVit::read_layer(const TiledVitNames& names, const TowerReader& reader,
                                     const TowerRanks& ranks, const std::string& at) const {
  const std::uint32_t hidden = config_.hidden_size;
  const std::uint32_t wide = config_.intermediate_size;
  const std::uint32_t dim = hidden / config_.num_heads;
  const auto vector = [&](const std::string& name) {
    return name.empty() ? std::vector<float>() : reader.tensor(at + name, {hidden});
  };
  Layer layer;
  layer.norm1 = read_norm(reader, at + names.norm1, config_);
  layer.norm2 = read_norm(reader, at + names.norm2, config_);
  layer.scale1 = vector(names.scale1);
  layer.scale2 = vector(names.scale2);
  layer.attention.dim = dim;
  layer.attention.q_norm = vector(names.q_norm);
  layer.attention.k_norm = vector(names.k_norm);
  layer.attention.norm_eps = config_.eps;
  layer.attention.o_bias = vector(names.out + ".bias");
  layer.mlp.down_bias = vector(names.fc2 + ".bias");
  layer.mlp.activation = config_.activation;
  for (const Split& split : ranks.shards()) {
    const Share heads = share_of(config_.num_heads, split);
    const Share own{heads.first * dim, heads.count * dim};
    const Share width = share_of(wide, split);
    const std::uint32_t there = own.first < hidden ? std::min(own.count, hidden - own.first) : 0;
    std::vector<OutputSlice> qkv;
    for (std::uint32_t part = 0; part < 3; ++part) {
      if (names.qkv.empty()) {
        const std::string* const separate[] = {&names.q, &names.k, &names.v};
        qkv.push_back({at + *separate[part], hidden, own});
      } else {  // behind its part, the rest of a share is zero
        qkv.push_back({at + names.qkv, 3 * hidden, {part * hidden + own.first, there}});
        qkv.push_back({at + names.qkv, 3 * hidden, {3 * hidden, own.count - there}});
      }
    }
    layer.attention.shards.push_back(
        {reader.columns(qkv, hidden, config_.qkv_bias), reader.rows(at + names.out, hidden, hidden, own)});
    const OutputSlice up{at + names.fc1, wide, width};
    layer.mlp.shards.push_back(
        {reader.columns({&up, 1}, hidden, true), reader.rows(at + names.fc2, hidden, wide, width)});
  }
  return layer;
}

void TiledVit::forward(float* x, std::uint32_t tiles, std::uint32_t length, const Turn& turn,
                       TowerRanks& ranks) const {
  const std::uint32_t rows = tiles * length;
  const std::size_t count = std::size_t{rows} * config_.hidden_size;
  std::vector<std::uint32_t> begins;
  for (std::uint32_t tile = 0; tile <= tiles; ++tile) begins.push_back(tile * length);
  TowerAttention::Turn turn_row;
  if (turn) turn_row = [&](std::uint32_t row, float* head) { turn(row % length, head); };
  std::vector<float> normed(count);
  std::vector<float> added(count);
  const auto add_scaled = [&](const std::vector<float>& scale) {
    for (std::size_t i = 0; !scale.empty() && i < count; ++i) added[i] *= scale[i % scale.size()];
    add(x, added.data(), count);
  };
  for (const Layer& layer : layers_) {
    layer.norm1.apply(x, rows, normed.data(), ranks.pool());
    layer.attention.forward(normed.data(), rows, begins, turn_row, ranks, added.data());
    add_scaled(layer.scale1);
    layer.norm2.apply(x, rows, normed.data(), ranks.pool());
    layer.mlp.forward(normed.data(), rows, ranks, added.data());
    add_scaled(layer.scale2);
  }
}

}  // namespace tpsim::rank
