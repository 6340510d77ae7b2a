#include "rank/numeric/hyper_connections.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/pass.h"

namespace tpsim::rank {
namespace {

float logistic(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// Rows or columns of a square matrix, each divided by its sum.
void balance(float* matrix, std::uint32_t size, bool columns, float eps) {
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto at = [&](std::uint32_t j) -> float& {
      return columns ? matrix[j * size + i] : matrix[i * size + j];
    };
    float sum = 0;
    for (std::uint32_t j = 0; j < size; ++j) sum += at(j);
    for (std::uint32_t j = 0; j < size; ++j) at(j) /= sum + eps;
  }
}

}  // namespace

void HyperConnections::begin(std::span<const float> embedding) {
  const std::size_t hidden = model_.hidden_size;
  const std::size_t streams = model_.compressed.streams;
  tokens_ = static_cast<std::uint32_t>(embedding.size() / hidden);
  streams_.resize(embedding.size() * streams);
  for (std::size_t row = 0; row < tokens_ * streams; ++row)
    std::copy_n(embedding.data() + row / streams * hidden, hidden, streams_.data() + row * hidden);
}

// Fills mixed_ with what the projection says of all streams of a token, normed together.
void HyperConnections::mix(const StreamWeights& weights) {
  const std::size_t size = std::size_t{model_.compressed.streams} * model_.hidden_size;
  normed_.resize(streams_.size());
  mixed_.resize(std::size_t{tokens_} * weights.mix.n());
  const std::vector<float> ones(size, 1.0F);
  pool_.parallel_for(tokens_, [&](std::uint32_t t, std::uint32_t) {
    rms_norm(streams_.data() + t * size, static_cast<std::uint32_t>(size), ones.data(), 0,
             static_cast<float>(model_.rms_norm_eps), normed_.data() + t * size);
  });
  const Stopwatch watch(times_.gemm);
  weights.mix.multiply(normed_.data(), tokens_, mixed_.data(), pool_);
}

// The streams of a token, each times its factor.
void HyperConnections::sum(const float* factors, std::uint32_t token, float* out) const {
  const std::size_t hidden = model_.hidden_size;
  const float* from = streams_.data() + token * hidden * model_.compressed.streams;
  std::fill_n(out, hidden, 0.0F);
  for (std::uint32_t s = 0; s < model_.compressed.streams; ++s, from += hidden)
    for (std::size_t c = 0; c < hidden; ++c) out[c] += factors[s] * from[c];
}

void HyperConnections::collapse(const StreamWeights& weights, float* out) {
  mix(weights);
  const Stopwatch watch(times_.other);
  const std::uint32_t streams = model_.compressed.streams;
  const auto eps = static_cast<float>(model_.compressed.stream_eps);
  pool_.parallel_for(tokens_, [&](std::uint32_t t, std::uint32_t) {
    float* const into = mixed_.data() + std::size_t{t} * weights.mix.n();
    float* const between = into + std::size_t{2} * streams;
    for (std::uint32_t s = 0; s < streams; ++s) {
      into[s] = logistic(into[s] * weights.scale[0] + weights.base[s]) + eps;
      into[streams + s] = 2 * logistic(into[streams + s] * weights.scale[1] + weights.base[streams + s]);
      float* const row = between + std::size_t{s} * streams;
      for (std::uint32_t j = 0; j < streams; ++j)
        row[j] = row[j] * weights.scale[2] + weights.base[(2 + s) * streams + j];
      softmax(row, streams);
      for (std::uint32_t j = 0; j < streams; ++j) row[j] += eps;
    }
    balance(between, streams, true, eps);
    for (std::uint32_t i = 1; i < model_.compressed.sinkhorn_iters; ++i) {
      balance(between, streams, false, eps);
      balance(between, streams, true, eps);
    }
    sum(into, t, out + std::size_t{t} * model_.hidden_size);
  });
}

void HyperConnections::expand(const float* said) {
  const std::size_t hidden = model_.hidden_size;
  const std::size_t streams = model_.compressed.streams;
  normed_.swap(streams_);  // the streams as they were
  const std::size_t stride = mixed_.size() / tokens_;
  pool_.parallel_for(tokens_, [&](std::uint32_t t, std::uint32_t) {
    const float* const out_of = mixed_.data() + t * stride + streams;
    const float* const between = out_of + streams;
    const float* const before = normed_.data() + t * streams * hidden;
    for (std::size_t s = 0; s < streams; ++s) {
      float* const to = streams_.data() + (t * streams + s) * hidden;
      for (std::size_t c = 0; c < hidden; ++c) to[c] = out_of[s] * said[t * hidden + c];
      for (std::size_t j = 0; j < streams; ++j)
        for (std::size_t c = 0; c < hidden; ++c) to[c] += between[j * streams + s] * before[j * hidden + c];
    }
  });
}

void HyperConnections::head(const StreamWeights& weights, float* out) {
  mix(weights);
  const auto eps = static_cast<float>(model_.compressed.stream_eps);
  pool_.parallel_for(tokens_, [&](std::uint32_t t, std::uint32_t) {
    float* const into = mixed_.data() + std::size_t{t} * weights.mix.n();
    for (std::uint32_t s = 0; s < weights.mix.n(); ++s)
      into[s] = logistic(into[s] * weights.scale[0] + weights.base[s]) + eps;
    sum(into, t, out + std::size_t{t} * model_.hidden_size);
  });
}

}  // namespace tpsim::rank
