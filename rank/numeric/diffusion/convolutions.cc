#include "rank/numeric/diffusion/convolutions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

std::size_t channels_of(const Volume& x) { return x.values.size() / x.positions(); }

Volume silu(Volume x) {
  activate(TowerActivation::kSilu, x.values.data(), x.values.size());
  return x;
}

// Each position four times: interpolation by the nearest.
Volume twice_the_size(const Volume& x) {
  const auto [frames, rows, columns] = x.size;
  const std::size_t channels = channels_of(x);
  Volume out{.size = {frames, 2 * rows, 2 * columns}, .values = {}};
  out.values.reserve(4 * x.values.size());
  for (std::uint32_t row = 0; row < frames * 2 * rows; ++row) {
    for (std::uint32_t column = 0; column < 2 * columns; ++column) {
      const std::size_t from = (std::size_t{row / 2} * columns + column / 2) * channels;
      const float* const position = x.values.data() + from;
      out.values.insert(out.values.end(), position, position + channels);
    }
  }
  return out;
}

// The first frame, then of each other the two that `convolution` makes of those but the first.
Volume more_frames(const Convolution& convolution, Volume x, ThreadPool& pool) {
  const auto [frames, rows, columns] = x.size;
  if (frames == 1) return x;
  const std::size_t channels = channels_of(x), frame = x.values.size() / frames;
  Volume rest{.size = {frames - 1, rows, columns},
              .values = {x.values.begin() + static_cast<std::ptrdiff_t>(frame), x.values.end()}};
  rest = convolution(rest, pool);  // [position, which of the two, channel]
  Volume out{.size = {2 * frames - 1, rows, columns}, .values = std::move(x.values)};
  out.values.resize(frame);
  for (std::uint32_t later = 0; later < 2 * (frames - 1); ++later) {
    for (std::size_t position = 0; position < frame / channels; ++position) {
      const std::size_t at = later / 2 * (frame / channels) + position;
      const float* const from = rest.values.data() + (2 * at + later % 2) * channels;
      out.values.insert(out.values.end(), from, from + channels);
    }
  }
  return out;
}

// As large as what a level makes of x, out of its channels: of [channel, frame of two, row of two, column of
// two] each `repeats` together are one of x's. Of the first frame the second alone is left.
Volume spread(const Volume& x, std::size_t channels, bool more) {
  const auto [frames, rows, columns] = x.size;
  const std::uint32_t each = more ? 2 : 1;
  const std::size_t inputs = channels_of(x), repeats = channels * each * 4 / inputs;
  Volume out{.size = {each * (frames - 1) + 1, 2 * rows, 2 * columns}, .values = {}};
  for (std::uint32_t frame = each - 1; frame < each * frames; ++frame) {
    for (std::uint32_t row = 0; row < 2 * rows; ++row) {
      for (std::uint32_t column = 0; column < 2 * columns; ++column) {
        const std::size_t from =
            ((std::size_t{frame} / each * rows + row / 2) * columns + column / 2) * inputs;
        for (std::size_t c = 0; c < channels; ++c) {
          const std::size_t place = ((c * each + frame % each) * 2 + row % 2) * 2 + column % 2;
          out.values.push_back(x.values[from + place / repeats]);
        }
      }
    }
  }
  return out;
}

}  // namespace

Volume channels_last(const LatentShape& shape, std::span<const float> values, const LatentScale& by) {
  const std::size_t channels = shape[0];
  Volume out{.size = {shape[1], shape[2], shape[3]}, .values = std::vector<float>(values.size())};
  const std::size_t positions = out.positions();
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t at = 0; at < positions; ++at) {
      const std::size_t row = at / shape[3] % shape[2] % by.patch, column = at % shape[3] % by.patch;
      const std::size_t i = (c * by.patch + row) * by.patch + column;
      out.values[at * channels + c] = values[c * positions + at] * by.scale[i] + by.shift[i];
    }
  }
  return out;
}

std::vector<float> channels_first(const Volume& volume) {
  const std::size_t positions = volume.positions(), channels = channels_of(volume);
  std::vector<float> out(volume.values.size());
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t at = 0; at < positions; ++at) out[c * positions + at] = volume.values[at * channels + c];
  }
  return out;
}

Convolution::Convolution(const TowerReader& reader, const std::string& name, std::uint32_t inputs,
                         std::uint32_t outputs, const std::vector<std::uint64_t>& kernel) {
  kernel_.fill(1);
  for (std::size_t i = 0; i < kernel.size(); ++i)
    kernel_[3 - kernel.size() + i] = static_cast<std::uint32_t>(kernel[i]);
  std::vector<std::uint64_t> shape{inputs};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  linear_ = reader.whole(name, outputs, shape, /*bias=*/true);
}

Volume Convolution::operator()(const Volume& x, ThreadPool& pool) const {
  const auto [frames, rows, columns] = x.size;
  const std::size_t channels = channels_of(x), inputs = linear_.weight.k(), outputs = linear_.weight.n();
  const std::size_t taps = std::size_t{kernel_[0]} * kernel_[1] * kernel_[2];
  Volume out{.size = x.size, .values = std::vector<float>(x.positions() * outputs)};
  std::vector<float> patches(columns * inputs);  // of a row
  for (std::uint32_t at = 0; at < frames * rows; ++at) {
    std::ranges::fill(patches, 0.0F);
    for (std::uint32_t tap = 0; tap < taps; ++tap) {
      // Unsigned numbers below 0 are beyond the sizes, too.
      const std::uint32_t frame = at / rows + tap / (kernel_[1] * kernel_[2]) - (kernel_[0] - 1);
      const std::uint32_t row = at % rows + tap / kernel_[2] % kernel_[1] - kernel_[1] / 2;
      if (frame >= frames || row >= rows) continue;
      for (std::uint32_t to = 0; to < columns; ++to) {
        const std::uint32_t column = to + tap % kernel_[2] - kernel_[2] / 2;
        if (column >= columns) continue;
        const std::size_t from = ((std::size_t{frame} * rows + row) * columns + column) * channels;
        for (std::size_t c = 0; c < channels; ++c) patches[to * inputs + c * taps + tap] = x.values[from + c];
      }
    }
    linear_.forward(patches.data(), columns, out.values.data() + std::size_t{at} * columns * outputs, pool);
  }
  return out;
}

Volume VolumeNorm::operator()(Volume x, ThreadPool& pool) const {
  if (groups == 0) {
    weights.apply(x.values.data(), x.positions(), x.values.data(), pool);
    return x;
  }
  const std::size_t channels = channels_of(x), wide = channels / groups;
  const std::size_t positions = x.positions() / x.size[0];  // of a frame
  pool.parallel_for(x.size[0] * groups, [&](std::uint32_t i, std::uint32_t) {
    const std::size_t first = i % groups * wide;
    float* const group = x.values.data() + i / groups * positions * channels + first;
    const auto sum = [&](double less, bool squares) {
      double out = 0;
      for (std::size_t at = 0; at < positions * wide; ++at) {
        const double value = group[at / wide * channels + at % wide] - less;
        out += squares ? value * value : value;
      }
      return out / static_cast<double>(positions * wide);
    };
    const double mean = sum(0, false), factor = 1 / std::sqrt(sum(mean, true) + weights.eps);
    for (std::size_t at = 0; at < positions * wide; ++at) {
      float& value = group[at / wide * channels + at % wide];
      const std::size_t c = first + at % wide;
      value = static_cast<float>((value - mean) * factor) * weights.weight[c] + weights.bias[c];
    }
  });
  return x;
}

Volume ResidualBlock::operator()(const Volume& x, ThreadPool& pool) const {
  Volume out = conv2(silu(norm2(conv1(silu(norm1(x, pool)), pool), pool)), pool);
  const auto plus = [&](const Volume& past) {
    add(out.values.data(), past.values.data(), out.values.size());
  };
  if (shortcut) {
    plus((*shortcut)(x, pool));
  } else {
    plus(x);
  }
  return out;
}

Volume FrameAttention::operator()(Volume x, ThreadPool& pool) const {
  const std::uint32_t rows = x.positions(), width = out.weight.n();
  std::vector<std::uint32_t> begins;
  for (std::uint32_t frame = 0; frame <= x.size[0]; ++frame) begins.push_back(frame * (rows / x.size[0]));
  std::vector<float> heads(std::size_t{rows} * 3 * width), met(x.values.size()), added(x.values.size());
  qkv.forward(norm(x, pool).values.data(), rows, heads.data(), pool);
  attend_segments(heads.data(), 1, width, begins, 1 / std::sqrt(static_cast<float>(width)), met.data(), pool);
  out.forward(met.data(), rows, added.data(), pool);
  add(x.values.data(), added.data(), added.size());
  return x;
}

namespace {

// Positions `first` and each `step`-th behind it, of frames, rows and columns.
Volume picked(const Volume& x, const std::array<std::uint32_t, 3>& first,
              const std::array<std::uint32_t, 3>& step) {
  Volume out;
  for (std::size_t i = 0; i < 3; ++i) out.size[i] = (x.size[i] - first[i] + step[i] - 1) / step[i];
  const std::uint32_t channels = channels_of(x);
  for (std::uint32_t f = first[0]; f < x.size[0]; f += step[0]) {
    for (std::uint32_t r = first[1]; r < x.size[1]; r += step[1]) {
      for (std::uint32_t c = first[2]; c < x.size[2]; c += step[2]) {
        const auto at =
            x.values.begin() +
            static_cast<std::ptrdiff_t>((std::size_t{f} * x.size[1] + r) * x.size[2] + c) * channels;
        out.values.insert(out.values.end(), at, at + channels);
      }
    }
  }
  return out;
}

// As small as what a level makes of x, in so many channels: means of each `together` of [channel, frame of
// two, row of two, column of two], with zeros before the first frame, where there are two.
Volume averaged(const Volume& x, std::size_t channels, bool smaller, bool fewer) {
  const std::uint32_t side = smaller ? 2 : 1, each = fewer ? 2 : 1;
  const auto [frames, rows, columns] = x.size;
  const std::size_t inputs = channels_of(x), together = inputs * each * side * side / channels;
  const std::uint32_t zeros = (each - frames % each) % each;
  Volume out{.size = {(frames + zeros) / each, rows / side, columns / side}, .values = {}};
  out.values.assign(std::size_t{out.positions()} * channels, 0);
  for (std::uint32_t frame = 0; frame < frames; ++frame) {
    for (std::uint32_t row = 0; row < out.size[1] * side; ++row) {
      for (std::uint32_t column = 0; column < out.size[2] * side; ++column) {
        const std::uint32_t later = frame + zeros;
        const float* const from =
            x.values.data() + ((std::size_t{frame} * rows + row) * columns + column) * inputs;
        float* const to =
            out.values.data() +
            ((std::size_t{later / each} * out.size[1] + row / side) * out.size[2] + column / side) * channels;
        for (std::size_t c = 0; c < inputs; ++c) {
          const std::size_t place = ((c * each + later % each) * side + row % side) * side + column % side;
          to[place / together] += from[c] / static_cast<float>(together);
        }
      }
    }
  }
  return out;
}

}  // namespace

// Strides by what is left out: of rows and columns zeros are behind the last alone, so that the middles of
// kernels are the odd ones; of frames the first stays what it is.
Volume ConvolutionalEncoder::operator()(Volume x, ThreadPool& pool) const {
  x = in(x, pool);
  for (const Level& level : levels) {
    const Volume before = level.residual ? x : Volume{};
    for (const ResidualBlock& block : level.blocks) x = block(x, pool);
    if (level.halved) x = picked((*level.halved)(x, pool), {0, 1, 1}, {1, 2, 2});
    if (level.frames && x.size[0] > 1) {
      const Volume less = picked((*level.frames)(x, pool), {2, 0, 0}, {2, 1, 1});
      x = picked(x, {0, 0, 0}, {x.size[0], 1, 1});
      x.values.insert(x.values.end(), less.values.begin(), less.values.end());
      x.size[0] += less.size[0];
    }
    if (!level.residual) continue;
    const Volume past = averaged(before, channels_of(x), level.halved.has_value(), level.frames.has_value());
    add(x.values.data(), past.values.data(), x.values.size());
  }
  x = middle[0](x, pool);
  if (attention) x = (*attention)(std::move(x), pool);
  return last(out(silu(norm(middle[1](x, pool), pool)), pool), pool);
}

Volume ConvolutionalDecoder::operator()(Volume x, ThreadPool& pool) const {
  if (first) x = (*first)(x, pool);
  x = middle[0](in(x, pool), pool);
  if (attention) x = (*attention)(std::move(x), pool);
  x = middle[1](x, pool);
  for (const Level& level : levels) {
    const Volume before = level.residual ? x : Volume{};
    for (const ResidualBlock& block : level.blocks) x = block(x, pool);
    if (level.frames) x = more_frames(*level.frames, std::move(x), pool);
    if (level.enlarged) x = (*level.enlarged)(twice_the_size(x), pool);
    if (!level.residual) continue;
    const Volume past = spread(before, channels_of(x), level.frames.has_value());
    add(x.values.data(), past.values.data(), x.values.size());
  }
  return out(silu(norm(std::move(x), pool)), pool);
}

std::array<std::uint32_t, 3> ConvolutionalDecoder::grown(std::array<std::uint32_t, 3> size) const {
  for (const Level& level : levels) {
    if (level.frames) size[0] = 2 * size[0] - 1;
    if (level.enlarged) {
      size[1] *= 2;
      size[2] *= 2;
    }
  }
  return size;
}

}  // namespace tpsim::rank
