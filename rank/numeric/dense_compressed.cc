#include "rank/numeric/dense_compressed.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tpsim::rank::dense {
namespace {

double opened(double x) { return 1 / (1 + std::exp(-x)); }

Row unit_norm(const Row& x, double eps) { return rms_norm(x, std::vector<float>(x.size(), 1.0F), eps, 0); }

Row part_of(const Row& x, std::size_t first, std::size_t count) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// What the projection says of the streams of each token, side by side.
Rows said_of(const ModelConfig& model, const StreamWeights& weights, const Streams& streams) {
  Rows joined(streams.front().size());
  for (std::size_t t = 0; t < joined.size(); ++t) {
    for (const Rows& stream : streams) joined[t].insert(joined[t].end(), stream[t].begin(), stream[t].end());
    joined[t] = unit_norm(joined[t], model.rms_norm_eps);
  }
  return times(weights.mix, joined);
}

// exp(m), its rows and columns divided by their sums in turn, columns last.
Rows doubly_stochastic(Rows m, const CompressedConfig& config) {
  const double eps = config.stream_eps;
  for (Row& row : m) {
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value - largest);
    for (double& value : row) value = value / sum + eps;
  }
  for (std::uint32_t i = 0; i < config.sinkhorn_iters; ++i) {
    for (Row& row : m) {
      double sum = eps;
      for (const double value : row) sum += value;
      for (double& value : row) value /= i == 0 ? 1 : sum;  // the first time softmax has done it
    }
    for (std::size_t j = 0; j < m.size(); ++j) {
      double sum = eps;
      for (const Row& row : m) sum += row[j];
      for (Row& row : m) row[j] /= sum;
    }
  }
  return m;
}

// Entry e, of tokens [e ratio, (e + 1) ratio) and, where groups overlap, as many before.
Rows entries_of(const ModelConfig& model, const LayerConfig& layer, const CompressorWeights& weights,
                const PlainRope& rope, const Rows& x) {
  const Rows made = times(weights.kv_gate, x);
  const std::size_t dim = weights.norm.size(), ratio = layer.compress_ratio, width = made[0].size() / 2;
  Rows entries;
  for (std::size_t last = ratio; last <= x.size(); last += ratio) {
    Row entry;
    for (std::size_t d = 0; d < dim; ++d) {
      Row gates;
      Rows keys;
      const auto take = [&](std::size_t first, std::size_t column) {
        for (std::size_t i = 0; i < ratio; ++i) {
          gates.push_back(made[first + i][width + column] + weights.position[i * width + column]);
          keys.push_back({made[first + i][column]});
        }
      };
      if (layer.indexer && last > ratio) take(last - 2 * ratio, d);
      take(last - ratio, width - dim + d);
      entry.push_back(mixed(gates, keys, 0)[0]);
    }
    entry = rms_norm(entry, weights.norm, model.rms_norm_eps, 0);
    rope.rotate(entry.data() + dim - model.compressed.rope_head_dim, last - ratio);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Of each token, which entries it attends to.
std::vector<std::vector<std::size_t>> chosen_entries(const ModelConfig& model, const LayerConfig& layer,
                                                     const CompressedWeights& weights, const PlainRope& rope,
                                                     const Rows& x, const Rows& lora) {
  std::vector<std::vector<std::size_t>> chosen(x.size());
  if (layer.compress_ratio == 0) return chosen;
  const std::size_t heads = model.indexer.num_heads, dim = model.indexer.head_dim;
  Rows queries, factors, keys;
  if (layer.indexer) {
    queries = times(weights.index_q, lora);
    factors = times(weights.index_heads, x);
    keys = entries_of(model, layer, weights.index, rope, x);
  }
  for (std::size_t t = 0; t < x.size(); ++t) {
    std::vector<std::pair<double, std::size_t>> order;  // score downwards, entry upwards
    for (std::size_t e = 0; e < (t + 1) / layer.compress_ratio; ++e) {
      double score = 0;
      for (std::size_t h = 0; layer.indexer && h < heads; ++h) {
        Row query = part_of(queries[t], h * dim, dim);
        rope.rotate(query.data() + dim - model.compressed.rope_head_dim, t);
        double product = 0;
        for (std::size_t c = 0; c < dim; ++c) product += query[c] * keys[e][c];
        score += factors[t][h] * std::max(product, 0.0);
      }
      order.emplace_back(-score, e);
    }
    if (layer.indexer && order.size() > model.indexer.top_k) {
      std::sort(order.begin(), order.end());
      order.resize(model.indexer.top_k);
    }
    for (const auto& [score, entry] : order) chosen[t].push_back(entry);
  }
  return chosen;
}

}  // namespace

void through(const ModelConfig& model, const StreamWeights& weights, Streams& streams,
             const std::function<Rows(const Rows& x)>& sublayer) {
  const Rows said = said_of(model, weights, streams);
  const std::size_t n = streams.size(), tokens = said.size();
  const auto weight = [&](std::size_t t, std::size_t i, std::size_t scale) {
    return said[t][i] * weights.scale[scale] + weights.base[i];
  };
  Rows read(tokens, Row(model.hidden_size, 0.0));
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t s = 0; s < n; ++s)
      add(read[t], streams[s][t], opened(weight(t, s, 0)) + model.compressed.stream_eps);
  const Rows result = sublayer(read);
  for (std::size_t t = 0; t < tokens; ++t) {
    Rows between(n, Row(n));
    for (std::size_t i = 0; i < n * n; ++i) between[i / n][i % n] = weight(t, 2 * n + i, 2);
    between = doubly_stochastic(std::move(between), model.compressed);
    Rows next(n, Row(model.hidden_size, 0.0));
    for (std::size_t s = 0; s < n; ++s) {
      add(next[s], result[t], 2 * opened(weight(t, n + s, 1)));
      for (std::size_t j = 0; j < n; ++j) add(next[s], streams[j][t], between[j][s]);
    }
    for (std::size_t s = 0; s < n; ++s) streams[s][t] = next[s];
  }
}

Rows collapse_for_head(const ModelConfig& model, const StreamWeights& weights, const Streams& streams) {
  const Rows said = said_of(model, weights, streams);
  Rows out(said.size(), Row(model.hidden_size, 0.0));
  for (std::size_t t = 0; t < out.size(); ++t)
    for (std::size_t s = 0; s < streams.size(); ++s)
      add(out[t], streams[s][t],
          opened(said[t][s] * weights.scale[0] + weights.base[s]) + model.compressed.stream_eps);
  return out;
}

Rows compressed_attention(const ModelConfig& model, const LayerConfig& layer, const LayerWeights& weights,
                          const PlainRope& rope, const Rows& x) {
  const CompressedWeights& mine = weights.compressed;
  const CompressedConfig& config = model.compressed;
  const std::size_t dim = model.head_dim, turned = dim - config.rope_head_dim;
  Rows lora, latents;
  for (const Row& row : times(mine.qkv_a, x)) {
    lora.push_back(rms_norm(part_of(row, 0, config.q_lora_rank), mine.q_norm, model.rms_norm_eps, 0));
    latents.push_back(rms_norm(part_of(row, config.q_lora_rank, dim), mine.kv_norm, model.rms_norm_eps, 0));
    rope.rotate(latents.back().data() + turned, latents.size() - 1);
  }
  const auto chosen = chosen_entries(model, layer, mine, rope, x, lora);
  Rows entries;
  if (layer.compress_ratio > 0) entries = entries_of(model, layer, mine.entries, rope, x);
  const Rows q = times(mine.q_b, lora);
  std::vector<Rows> groups(config.o_groups, Rows(x.size()));
  for (std::size_t t = 0; t < x.size(); ++t) {
    Rows seen;
    for (std::size_t j = t + 1 > layer.sliding_window ? t + 1 - layer.sliding_window : 0; j <= t; ++j)
      seen.push_back(latents[j]);
    for (const std::size_t entry : chosen[t]) seen.push_back(entries[entry]);
    for (std::size_t h = 0; h < model.num_attention_heads; ++h) {
      Row query = unit_norm(part_of(q[t], h * dim, dim), model.rms_norm_eps);
      rope.rotate(query.data() + turned, t);
      Row scores;
      for (const Row& key : seen) {
        double product = 0;
        for (std::size_t c = 0; c < dim; ++c) product += query[c] * key[c];
        scores.push_back(product * model.attention_scale);
      }
      Row head = mixed(scores, seen, 0, &weights.sinks[h]);
      rope.unrotate(head.data() + turned, t);
      Row& group = groups[h * config.o_groups / model.num_attention_heads][t];
      group.insert(group.end(), head.begin(), head.end());
    }
  }
  Rows joined(x.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Rows narrow = times(mine.o_a[g], groups[g]);
    for (std::size_t t = 0; t < x.size(); ++t)
      joined[t].insert(joined[t].end(), narrow[t].begin(), narrow[t].end());
  }
  return times(mine.o_b, joined);
}

}  // namespace tpsim::rank::dense
