// What families of denoising transformers share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {

// Cosine, then sine, of t / 10000^(i / (size / 2)): Diffusers' Timesteps(flip_sin_to_cos=True,
// downscale_freq_shift=0).
std::vector<float> sinusoids(float t, std::uint32_t size);

// A layer norm without weights, times 1 + scale, plus shift: rows of `width`.
std::vector<float> modulated(const std::vector<float>& x, std::uint32_t width, float eps, const float* shift,
                             const float* scale);
// A linear layer of which each rank of --tp-size has a part: some outputs, or some inputs, whose products are
// to be added up.
struct CutLinear {
  std::vector<TowerLinear> shards;
  std::vector<float> bias;  // of the sum; empty: none
};
// Reads them. `pieces`: parts of the outputs or inputs, each cut by itself (several layers in one tensor);
// none: all as one. REQUIRES: each is divisible.
struct CutReader {
  const TowerReader& reader;
  std::uint32_t tp_size = 1;
  bool bias = true;
  using Pieces = std::vector<Share>;
  CutLinear columns(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                    const Pieces& pieces = {}) const;
  CutLinear rows(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                 const Pieces& pieces = {}) const;
};
// Throws UserError naming --tp-size where it does not divide `count`, the config's `key`.
void refuse_uncut(std::uint32_t tp_size, std::uint32_t count, const char* key, const std::string& where);
// Of rows of linear.weight.k().
std::vector<float> product(const TowerLinear& linear, const std::vector<float>& x, ThreadPool& pool);
// Two linear layers with an activation between them.
struct Embedder {
  TowerLinear first, second;
  TowerActivation activation = TowerActivation::kSilu;
  // Of rows of first.weight.k().
  std::vector<float> operator()(const std::vector<float>& x, ThreadPool& pool) const;
};
// to += rows * gate, rows of `width`.
void add_gated(std::vector<float>& to, const std::vector<float>& rows, const float* gate,
               std::uint32_t width);

// Rotary positions of three axes or four, each with so many of a head's elements; pairs of neighbours turn by
// position / theta^(i / size).
struct RotaryAxes {
  std::array<std::uint32_t, 4> sizes{};  // the last 0: there is none
  double theta = 10000;
};
// `axes` numbers of key `key`. Throws UserError unless they are even and fill a head of `dim`.
RotaryAxes read_rotary_axes(const ConfigReader& config, const char* key, RotaryAxes otherwise,
                            std::uint32_t dim, std::uint32_t axes = 3);
using Position = std::array<std::int32_t, 4>;
struct Rotation {
  std::vector<float> cosines, sines;  // of each pair
};
Rotation rotation(const Position& position, const RotaryAxes& axes);
// Of the tokens of a share, at their frame, row and column from that of the first token of the grid.
std::vector<Rotation> rotations(const Share& share, const attention::GridSize& grid, const RotaryAxes& axes,
                                const Position& first = {});
// Row t of `rows`, of all heads, by turns[t].
void turn_rows(const std::vector<Rotation>& turns, std::uint32_t heads, std::vector<float>& rows);

// place(token, channel, index of the latent) for the tokens of a share: their channels, of each its patch.
template <typename Place>
void for_patches(const LatentShape& shape, const std::array<std::uint32_t, 3>& patch,
                 const attention::GridSize& grid, const Share& share, const Place& place) {
  for (std::uint32_t token = share.first; token < share.first + share.count; ++token) {
    const std::uint32_t frame = token / (grid[1] * grid[2]), row = token / grid[2] % grid[1],
                        column = token % grid[2];
    for (std::uint32_t channel = 0; channel < shape[0]; ++channel) {
      for (std::uint32_t f = 0; f < patch[0]; ++f) {
        for (std::uint32_t y = 0; y < patch[1]; ++y) {
          for (std::uint32_t z = 0; z < patch[2]; ++z) {
            const std::size_t plane = std::size_t{channel} * shape[1] + frame * patch[0] + f;
            place(token, channel, (plane * shape[2] + row * patch[1] + y) * shape[3] + column * patch[2] + z);
          }
        }
      }
    }
  }
}

}  // namespace tpsim::rank
