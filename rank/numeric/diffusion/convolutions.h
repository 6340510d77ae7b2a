// What VAEs are made of: convolutions over frames, rows and columns, blocks of two of them, and
// attention within a frame.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rank/linear/thread_pool.h"
#include "rank/numeric/diffusion/latent_shape.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {

// Of one sample, the channels of a position together.
struct Volume {
  std::array<std::uint32_t, 3> size{};  // frames, rows, columns
  std::vector<float> values;            // [positions(), channels]
  std::uint32_t positions() const { return size[0] * size[1] * size[2]; }
};
// What latents are multiplied by and moved: of each channel, or of its places in a patch of rows and columns.
struct LatentScale {
  std::vector<float> scale, shift;  // [channels, patch, patch]
  std::uint32_t patch = 1;
};
// Of `values` [channels, frames, rows, columns].
Volume channels_last(const LatentShape& shape, std::span<const float> values, const LatentScale& by);
std::vector<float> channels_first(const Volume& volume);  // the way back

// Zeros around each frame, so that its size stays. A kernel over several frames is causal: zeros stand
// before the first one. Diffusers decodes frame by frame and keeps those before in a cache; of all frames at
// once this is the same.
class Convolution {
 public:
  // NAME.weight [outputs, inputs, kernel…], of two or three dimensions, and NAME.bias.
  Convolution(const TowerReader& reader, const std::string& name, std::uint32_t inputs, std::uint32_t outputs,
              const std::vector<std::uint64_t>& kernel);
  Volume operator()(const Volume& x, ThreadPool& pool) const;

 private:
  std::array<std::uint32_t, 3> kernel_{};  // frames, rows, columns
  TowerLinear linear_;                     // inputs: channel after channel, of each its kernel
};

// Over groups of channels of a frame (GroupNorm), or, with 0 groups, the root mean square of a position's.
struct VolumeNorm {
  std::uint32_t groups = 0;
  TowerNorm weights;
  Volume operator()(Volume x, ThreadPool& pool) const;
};

// x + conv2(silu(norm2(conv1(silu(norm1 x))))), x through a convolution where the channels change.
struct ResidualBlock {
  VolumeNorm norm1, norm2;
  Convolution conv1, conv2;
  std::optional<Convolution> shortcut;
  Volume operator()(const Volume& x, ThreadPool& pool) const;
};

// Of tensors AT norm1, conv1, norm2, conv2 and conv_shortcut, as norm(name, channels) and
// convolution(name, inputs, outputs, side) read them.
template <typename Norm, typename Read>
ResidualBlock read_residual_block(const Norm& norm, const Read& convolution, const std::string& at,
                                  std::uint32_t inputs, std::uint32_t outputs) {
  ResidualBlock block{.norm1 = norm(at + "norm1", inputs),
                      .norm2 = norm(at + "norm2", outputs),
                      .conv1 = convolution(at + "conv1", inputs, outputs, 3),
                      .conv2 = convolution(at + "conv2", outputs, outputs, 3),
                      .shortcut = {}};
  if (inputs != outputs) block.shortcut = convolution(at + "conv_shortcut", inputs, outputs, 1);
  return block;
}
// `count` of them, of AT resnets.0. and so on.
template <typename Norm, typename Read>
std::vector<ResidualBlock> read_residual_blocks(const Norm& norm, const Read& convolution,
                                                const std::string& at, std::uint32_t count,
                                                std::uint32_t inputs, std::uint32_t outputs) {
  std::vector<ResidualBlock> blocks;
  for (std::uint32_t i = 0; i < count; ++i)
    blocks.push_back(read_residual_block(norm, convolution, at + "resnets." + std::to_string(i) + ".",
                                         i == 0 ? inputs : outputs, outputs));
  return blocks;
}

// x + out(attention(norm x)), one head, the positions of a frame to each other.
struct FrameAttention {
  VolumeNorm norm;
  TowerLinear qkv, out;
  Volume operator()(Volume x, ThreadPool& pool) const;
};

// The encoder that these make up.
struct ConvolutionalEncoder {
  struct Level {
    std::vector<ResidualBlock> blocks;
    std::optional<Convolution> halved;  // of each second row and column
    std::optional<Convolution> frames;  // makes one of two frames, but for the first
    bool residual = false;              // what went in is added, as means of what becomes one channel
  };
  Convolution in;
  std::vector<Level> levels;
  std::vector<ResidualBlock> middle;        // two
  std::optional<FrameAttention> attention;  // between them
  VolumeNorm norm;                          // and SiLU
  Convolution out, last;

  Volume operator()(Volume x, ThreadPool& pool) const;
};

// The decoder that these make up.
struct ConvolutionalDecoder {
  struct Level {
    std::vector<ResidualBlock> blocks;
    std::optional<Convolution> frames;    // makes two of each frame but the first
    std::optional<Convolution> enlarged;  // of twice the rows and columns, each position four times
    bool residual = false;                // what went in is added, with channels spread over what is new
  };
  std::optional<Convolution> first;
  Convolution in;
  std::vector<ResidualBlock> middle;        // two
  std::optional<FrameAttention> attention;  // between them
  std::vector<Level> levels;
  VolumeNorm norm;  // and SiLU
  Convolution out;

  Volume operator()(Volume x, ThreadPool& pool) const;
  // Frames, rows and columns that it makes of these.
  std::array<std::uint32_t, 3> grown(std::array<std::uint32_t, 3> size) const;
};

}  // namespace tpsim::rank
