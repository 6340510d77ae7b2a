#include "rank/numeric/vision/tower_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numbers>
#include <numeric>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

std::uint64_t elements(const std::vector<std::uint64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

}  // namespace

void TowerLinear::forward(const float* x, std::uint32_t rows, float* y, ThreadPool& pool) const {
  weight.multiply(x, rows, y, pool, bias);
}

TowerReader::TowerReader(const TensorSource& source, WeightType type,
                         const std::vector<std::string_view>& prefixes, std::string_view probe)
    : source_(source), type_(type), prefix_(prefixes.front()) {
  for (const std::string_view prefix : prefixes) {
    if (!source.has(std::string(prefix) + std::string(probe))) continue;
    prefix_ = prefix;
    return;
  }
}

TowerLinear TowerReader::columns(std::span<const OutputSlice> slices,
                                 const std::vector<std::uint64_t>& inputs, bool bias) const {
  TowerLinear linear;
  std::uint32_t outputs = 0;
  for (const OutputSlice& slice : slices) {
    std::vector<std::uint64_t> whole{slice.outputs};
    whole.insert(whole.end(), inputs.begin(), inputs.end());
    source_.require(prefix_ + slice.name + ".weight", whole);
    outputs += slice.share.count;
    if (!bias) continue;
    const std::vector<float> all = tensor(slice.name + ".bias", {slice.outputs});
    for (std::uint32_t i = 0; i < slice.share.count; ++i) {
      const std::uint32_t output = slice.share.first + i;
      linear.bias.push_back(output < slice.outputs ? all[output] : 0.0F);
    }
  }
  std::size_t current = 0;  // outputs come in order
  std::uint32_t begin = 0;
  const auto width = static_cast<std::uint32_t>(elements(inputs));
  linear.weight = PackedMatrix(type_, outputs, width, [&](std::uint32_t output, float* out) {
    while (output >= begin + slices[current].share.count) begin += slices[current++].share.count;
    const OutputSlice& slice = slices[current];
    const std::uint32_t row = slice.share.first + (output - begin);
    if (row < slice.outputs) {
      source_.read(prefix_ + slice.name + ".weight", std::uint64_t{row} * width, width, out);
    } else {
      std::fill_n(out, width, 0.0F);
    }
  });
  return linear;
}

TowerLinear TowerReader::whole(const std::string& name, std::uint32_t outputs,
                               const std::vector<std::uint64_t>& inputs, bool bias) const {
  const OutputSlice slice{name, outputs, {0, outputs}};
  return columns({&slice, 1}, inputs, bias);
}

TowerLinear TowerReader::rows(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                              const std::vector<Share>& shares) const {
  const std::string tensor = prefix_ + name + ".weight";
  source_.require(tensor, {outputs, inputs});
  std::uint32_t count = 0;
  for (const Share& share : shares) count += share.count;
  TowerLinear linear;
  linear.weight = PackedMatrix(type_, outputs, count, [&](std::uint32_t output, float* out) {
    std::fill_n(out, count, 0.0F);
    for (const Share& share : shares) {
      const std::uint32_t there =
          share.first < inputs ? std::min(share.count, inputs - share.first) : 0;  // the rest is zero
      if (there > 0) source_.read(tensor, std::uint64_t{output} * inputs + share.first, there, out);
      out += share.count;
    }
  });
  return linear;
}

std::vector<float> TowerReader::tensor(const std::string& name,
                                       const std::vector<std::uint64_t>& shape) const {
  source_.require(prefix_ + name, shape);
  std::vector<float> out(elements(shape));
  source_.read(prefix_ + name, 0, out.size(), out.data());
  return out;
}

TowerNorm TowerReader::norm(const std::string& name, std::uint32_t size, float eps, bool rms) const {
  return {.weight = tensor(name + ".weight", {size}),
          .bias = rms ? std::vector<float>() : tensor(name + ".bias", {size}),
          .eps = eps};
}

TowerMlp TowerReader::mlp(const std::vector<std::string>& up, const std::string& down, const MlpSizes& sizes,
                          bool bias, const TowerRanks& ranks) const {
  TowerMlp mlp;
  mlp.gated = up.size() > 1;
  if (bias) mlp.down_bias = tensor(down + ".bias", {sizes.outputs});
  for (const Split& split : ranks.shards()) {
    const Share share = share_of(sizes.width, split);
    std::vector<OutputSlice> slices;
    for (const std::string& name : up) slices.push_back({name, sizes.width, share});
    mlp.shards.push_back(
        {columns(slices, {sizes.inputs}, bias), rows(down, sizes.outputs, sizes.width, {share})});
  }
  return mlp;
}

TowerActivation tower_activation(const std::string& name, const std::string& where) {
  if (name == "silu") return TowerActivation::kSilu;
  if (name == "gelu") return TowerActivation::kGelu;
  if (name == "gelu_pytorch_tanh") return TowerActivation::kGeluTanh;
  if (name == "quick_gelu") return TowerActivation::kQuickGelu;
  throw_user_error("{}: hidden_act \"{}\" is not computed; silu, gelu, gelu_pytorch_tanh and quick_gelu are",
                   where, name.substr(0, 40));
}

void activate(TowerActivation activation, float* x, std::size_t count) {
  constexpr float kTanhGain = 0.7978845608F;  // sqrt(2 / pi)
  constexpr float kQuick = 1.702F;
  const auto sigmoid = [](float v) { return 1.0F / (1.0F + std::exp(-v)); };
  for (std::size_t i = 0; i < count; ++i) {
    const float v = x[i];
    switch (activation) {
      case TowerActivation::kSilu:
        x[i] = v * sigmoid(v);
        break;
      case TowerActivation::kGelu:
        x[i] = 0.5F * v * (1.0F + std::erf(v / std::numbers::sqrt2_v<float>));
        break;
      case TowerActivation::kGeluTanh:
        x[i] = 0.5F * v * (1.0F + std::tanh(kTanhGain * (v + 0.044715F * v * v * v)));
        break;
      case TowerActivation::kQuickGelu:
        x[i] = v * sigmoid(kQuick * v);
        break;
    }
  }
}

void add_bias(float* y, std::uint32_t rows, const std::vector<float>& bias) {
  if (bias.empty()) return;
  for (std::uint32_t r = 0; r < rows; ++r) add(y + std::size_t{r} * bias.size(), bias.data(), bias.size());
}

void TowerNorm::apply(const float* x, std::uint32_t rows, float* out, ThreadPool& pool) const {
  const auto size = static_cast<std::uint32_t>(weight.size());
  pool.parallel_for(rows, [&](std::uint32_t r, std::uint32_t) {
    const std::size_t at = std::size_t{r} * size;
    if (bias.empty()) {
      rms_norm(x + at, size, weight.data(), 0, eps, out + at);
    } else {
      layer_norm(x + at, size, weight.data(), bias.data(), eps, out + at);
    }
  });
}

void attend_segments(const float* qkv, std::uint32_t heads, std::uint32_t dim,
                     std::span<const std::uint32_t> begins, float scale, float* out, ThreadPool& pool) {
  const std::size_t size = std::size_t{heads} * dim;
  const std::size_t width = 3 * size;
  const std::uint32_t rows = begins.back();
  std::vector<std::uint32_t> segment(rows);
  for (std::uint32_t i = 0; i + 1 < begins.size(); ++i)
    std::fill(segment.begin() + begins[i], segment.begin() + begins[i + 1], i);
  std::vector<std::vector<float>> scratch(pool.size());
  pool.parallel_for(rows, [&](std::uint32_t row, std::uint32_t thread) {
    const std::uint32_t first = begins[segment[row]];
    const std::uint32_t count = begins[segment[row] + 1] - first;
    std::vector<float>& scores = scratch[thread];
    scores.resize(count);
    for (std::uint32_t h = 0; h < heads; ++h) {
      const float* const q = qkv + row * width + std::size_t{h} * dim;
      const float* const k = qkv + first * width + size + std::size_t{h} * dim;
      const float* const v = k + size;
      for (std::uint32_t j = 0; j < count; ++j) scores[j] = dot(q, k + j * width, dim) * scale;
      softmax(scores.data(), count);
      float* const to = out + row * size + std::size_t{h} * dim;
      std::fill_n(to, dim, 0.0F);
      for (std::uint32_t j = 0; j < count; ++j) {
        const float weight = scores[j];
        const float* const value = v + j * width;
        for (std::uint32_t c = 0; c < dim; ++c) to[c] += weight * value[c];
      }
    }
  });
}

// The ranks know parts of each row: their sums of squares are added up.
void TowerAttention::norm_queries(std::vector<std::vector<float>>& qkv, std::uint32_t rows,
                                  TowerRanks& ranks) const {
  // Row r / 2, its queries and its keys.
  const auto part_of = [&](std::uint32_t shard, std::uint32_t r) {
    const std::size_t size = shards[shard].o.weight.k();
    return std::span<float>(qkv[shard]).subspan((std::size_t{r / 2} * 3 + r % 2) * size, size);
  };
  std::vector<float> squares(std::size_t{2} * rows);
  for (const std::uint32_t i : ranks.active()) {
    std::vector<float>& part = ranks.part(i, squares.size());
    for (std::uint32_t r = 0; r < 2 * rows; ++r) {
      const std::span<const float> x = part_of(i, r);
      part[r] = dot(x.data(), x.data(), x.size());
    }
  }
  ranks.reduce(squares.size(), squares.data());
  for (const std::uint32_t i : ranks.active()) {
    const std::size_t first = ranks.shards()[i].rank * part_of(i, 0).size();
    for (std::uint32_t r = 0; r < 2 * rows; ++r) {
      const std::vector<float>& weight = r % 2 == 0 ? q_norm : k_norm;
      const float factor = 1.0F / std::sqrt(squares[r] / static_cast<float>(weight.size()) + norm_eps);
      const std::span<float> x = part_of(i, r);
      for (std::size_t c = 0; c < x.size() && first + c < weight.size(); ++c)
        x[c] *= factor * weight[first + c];
    }
  }
}

void TowerAttention::forward(const float* x, std::uint32_t rows, std::span<const std::uint32_t> begins,
                             const Turn& turn, TowerRanks& ranks, float* out) const {
  std::vector<std::vector<float>> qkv(shards.size());
  std::vector<float> attended;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  std::size_t outputs = 0;
  for (const PerShard& shard : shards) outputs = shard.o.weight.n();
  for (const std::uint32_t i : ranks.active()) {
    qkv[i].resize(std::size_t{rows} * shards[i].qkv.weight.n());
    shards[i].qkv.forward(x, rows, qkv[i].data(), ranks.pool());
  }
  if (!q_norm.empty()) norm_queries(qkv, rows, ranks);
  for (const std::uint32_t i : ranks.active()) {
    const PerShard& shard = shards[i];
    const std::uint32_t heads = shard.o.weight.k() / dim;
    const std::size_t width = std::size_t{3} * heads * dim;
    attended.resize(std::size_t{rows} * heads * dim);
    if (turn) {
      ranks.pool().parallel_for(rows, [&](std::uint32_t row, std::uint32_t) {
        for (std::uint32_t h = 0; h < 2 * heads; ++h)
          turn(row, qkv[i].data() + row * width + std::size_t{h} * dim);
      });
    }
    attend_segments(qkv[i].data(), heads, dim, begins, scale, attended.data(), ranks.pool());
    shard.o.forward(attended.data(), rows, ranks.part(i, rows * outputs).data(), ranks.pool());
  }
  ranks.reduce(rows * outputs, out);
  add_bias(out, rows, o_bias);
}

void TowerMlp::forward(const float* x, std::uint32_t rows, TowerRanks& ranks, float* out) const {
  std::vector<float> inner;
  std::size_t outputs = 0;
  for (const PerShard& shard : shards) outputs = shard.down.weight.n();
  for (const std::uint32_t i : ranks.active()) {
    const PerShard& shard = shards[i];
    const std::size_t width = shard.down.weight.k();
    const std::size_t all = shard.up.weight.n();
    inner.resize(rows * all);
    shard.up.forward(x, rows, inner.data(), ranks.pool());
    ranks.pool().parallel_for(rows, [&](std::uint32_t row, std::uint32_t) {
      float* const gate = inner.data() + row * all;
      activate(activation, gate, width);
      if (!gated) return;
      for (std::size_t c = 0; c < width; ++c) gate[c] *= gate[width + c];
    });
    if (gated) {  // rows together
      for (std::uint32_t row = 1; row < rows; ++row)
        std::copy_n(inner.data() + row * all, width, inner.data() + row * width);
    }
    shard.down.forward(inner.data(), rows, ranks.part(i, rows * outputs).data(), ranks.pool());
  }
  ranks.reduce(rows * outputs, out);
  add_bias(out, rows, down_bias);
}

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
        {reader.columns(qkv, {hidden}, vision.qkv_bias), reader.rows(at + names.out, hidden, hidden, {own})});
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
