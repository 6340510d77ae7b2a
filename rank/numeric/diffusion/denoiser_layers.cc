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
