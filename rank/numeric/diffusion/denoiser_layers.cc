#include "rank/numeric/diffusion/denoiser_layers.h"

#include <algorithm>
#include <cmath>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"

namespace tpsim::rank {

std::vector<float> sinusoids(float t, std::uint32_t size) {
  const std::uint32_t half = size / 2;
  std::vector<float> out(size);
  for (std::uint32_t i = 0; i < half; ++i) {
    const float angle = t * std::exp(-std::log(10000.0F) * static_cast<float>(i) / static_cast<float>(half));
    out[i] = std::cos(angle);
    out[half + i] = std::sin(angle);
  }
  return out;
}

std::vector<float> modulated(const std::vector<float>& x, std::uint32_t width, float eps, const float* shift,
                             const float* scale) {
  std::vector<float> weight(width), out(x.size());
  for (std::uint32_t i = 0; i < width; ++i) weight[i] = 1 + scale[i];
  for (std::size_t at = 0; at < x.size(); at += width)
    layer_norm(x.data() + at, width, weight.data(), shift, eps, out.data() + at);
  return out;
}

namespace {

// Of each piece the part of shard `rank`.
std::vector<Share> parts_of(CutReader::Pieces pieces, std::uint32_t all, const Split& split) {
  if (pieces.empty()) pieces = {{0, all}};
  for (Share& piece : pieces) {
    const Share part = share_of(piece.count, split);
    piece = {piece.first + part.first, part.count};
  }
  return pieces;
}

}  // namespace

CutLinear CutReader::columns(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                             const Pieces& pieces) const {
  CutLinear out;
  for (std::uint32_t rank = 0; rank < tp_size; ++rank) {
    std::vector<OutputSlice> slices;
    for (const Share& part : parts_of(pieces, outputs, {tp_size, rank}))
      slices.push_back({name, outputs, part});
    out.shards.push_back(reader.columns(slices, {inputs}, bias));
  }
  return out;
}

CutLinear CutReader::rows(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                          const Pieces& pieces) const {
  CutLinear out;
  for (std::uint32_t rank = 0; rank < tp_size; ++rank)
    out.shards.push_back(reader.rows(name, outputs, inputs, parts_of(pieces, inputs, {tp_size, rank})));
  if (bias) out.bias = reader.tensor(name + ".bias", {outputs});
  return out;
}

void refuse_uncut(std::uint32_t tp_size, std::uint32_t count, const char* key, const std::string& where) {
  if (count % tp_size != 0)
    throw_user_error("--tp-size {}: does not divide {} of {}, {}", tp_size, key, where, count);
}

std::vector<float> product(const TowerLinear& linear, const std::vector<float>& x, ThreadPool& pool) {
  const auto rows = static_cast<std::uint32_t>(x.size() / linear.weight.k());
  std::vector<float> out(std::size_t{rows} * linear.weight.n());
  linear.forward(x.data(), rows, out.data(), pool);
  return out;
}

std::vector<float> Embedder::operator()(const std::vector<float>& x, ThreadPool& pool) const {
  std::vector<float> hidden = product(first, x, pool);
  activate(activation, hidden.data(), hidden.size());
  return product(second, hidden, pool);
}

void add_gated(std::vector<float>& to, const std::vector<float>& rows, const float* gate,
               std::uint32_t width) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += rows[i] * gate[i % width];
}

RotaryAxes read_rotary_axes(const ConfigReader& config, const char* key, RotaryAxes otherwise,
                            std::uint32_t dim, std::uint32_t axes) {
  auto& [sizes, theta] = otherwise;
  if (config.has(key)) {
    const Json& json = config.json().at(key);
    const bool all = json.is_array() && json.size() == axes;
    for (std::size_t i = 0; i < axes; ++i) {
      if (!all || !json[i].is_number_unsigned() || json[i] > 1024U)
        throw_user_error("{}: key \"{}\" must be {} whole numbers", config.where(), key, axes);
      sizes[i] = json[i].get<std::uint32_t>();
    }
  }
  const bool even = std::ranges::all_of(sizes, [](std::uint32_t size) { return size % 2 == 0; });
  if (!even || sizes[0] + sizes[1] + sizes[2] + sizes[3] != dim)
    throw_user_error("{}: key \"{}\" must be even numbers whose sum is the size of a head, {}",
                     config.where(), key, dim);
  return otherwise;
}

Rotation rotation(const Position& position, const RotaryAxes& axes) {
  Rotation out;
  for (std::size_t axis = 0; axis < axes.sizes.size(); ++axis) {
    for (std::uint32_t i = 0; i < axes.sizes[axis]; i += 2) {
      const double angle = position[axis] * std::pow(axes.theta, -static_cast<double>(i) / axes.sizes[axis]);
      out.cosines.push_back(static_cast<float>(std::cos(angle)));
      out.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return out;
}

std::vector<Rotation> rotations(const Share& share, const attention::GridSize& grid, const RotaryAxes& axes,
                                const Position& first) {
  std::vector<Rotation> out;
  for (std::uint32_t token = share.first; token < share.first + share.count; ++token) {
    const std::array<std::uint32_t, 3> at = {token / (grid[1] * grid[2]), token / grid[2] % grid[1],
                                             token % grid[2]};
    Position position = first;
    for (std::size_t axis = 0; axis < 3; ++axis) position[axis] += static_cast<std::int32_t>(at[axis]);
    out.push_back(rotation(position, axes));
  }
  return out;
}

void turn_rows(const std::vector<Rotation>& turns, std::uint32_t heads, std::vector<float>& rows) {
  float* row = rows.data();
  for (const Rotation& by : turns) {
    const std::size_t pairs = by.cosines.size();
    for (std::size_t head = 0; head < heads; ++head, row += 2 * pairs) {
      for (std::size_t i = 0; i < pairs; ++i) {
        const float a = row[2 * i], b = row[2 * i + 1];
        row[2 * i] = a * by.cosines[i] - b * by.sines[i];
        row[2 * i + 1] = a * by.sines[i] + b * by.cosines[i];
      }
    }
  }
}

}  // namespace tpsim::rank
