#include "rank/numeric/dense_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "rank/config/shard.h"
#include "rank/numeric/dense_compressed.h"
#include "rank/numeric/dense_mlp.h"
#include "rank/numeric/dense_parts.h"
#include "rank/numeric/rank_weights.h"

namespace tpsim::rank {
namespace {

using dense::add;
using dense::layer_norm;
using dense::mixed;
using dense::PlainRope;
using dense::rms_norm;
using dense::Row;
using dense::Rows;
using dense::scaled;
using dense::stored;
using dense::times;

// Attention of one head over the whole sequence. q, k [tokens, d], v [tokens, dv].
Rows attend(const Rows& q, const Rows& k, const Rows& v, double scale, double cap, const LayerConfig& layer,
            const float* sink, const std::vector<std::vector<bool>>* chosen = nullptr,
            std::span<const std::uint32_t> ends = {}) {
  Rows out;
  for (std::size_t t = 0; t < q.size(); ++t) {
    const std::uint32_t window = layer.sliding_window;
    std::size_t first = window > 0 && t + 1 > window ? t + 1 - window : 0;
    if (layer.attention_chunk > 0) first = std::max(first, t - t % layer.attention_chunk);
    const std::size_t end = t < ends.size() ? ends[t] : t + 1;
    Row scores;
    for (std::size_t j = first; j < end; ++j) {
      double score = 0;
      for (std::size_t c = 0; c < q[t].size(); ++c) score += q[t][c] * k[j][c];
      score *= scale;
      const bool seen = chosen == nullptr || (*chosen)[t][j];
      scores.push_back(!seen     ? -std::numeric_limits<double>::infinity()
                       : cap > 0 ? cap * std::tanh(score / cap)
                                 : score);
    }
    out.push_back(mixed(scores, v, first, sink));
  }
  return out;
}

// Dual chunk attention of one head over the whole sequence, by its definition (An et al. 2024, section 3):
// attention in which query i and key j are taken to be distance(i, j) apart. q and k are not rotated.
class ChunkedAttention {
 public:
  ChunkedAttention(const DualChunkConfig& config, const PlainRope& rope, std::size_t dim, std::size_t tokens)
      : config_(config) {
    for (std::size_t apart = 0; apart <= std::min<std::size_t>(config.chunk_size, tokens); ++apart) {
      Row& row = turns_.emplace_back(dim, 0.0);  // cosines, then sines
      std::fill(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(dim / 2), 1.0);
      rope.rotate(row.data(), apart);
    }
  }

  Rows attend(const Rows& q, const Rows& k, const Rows& v, double scale) const {
    Rows out;
    for (std::size_t i = 0; i < q.size(); ++i) {
      Row scores;
      for (std::size_t j = 0; j <= i; ++j) scores.push_back(scale * score(q[i], k[j], distance(i, j)));
      out.push_back(mixed(scores, v, 0));
    }
    return out;
  }

 private:
  std::size_t distance(std::size_t i, std::size_t j) const {
    const std::size_t most = config_.chunk_size;
    const std::size_t s = most - config_.local_size;
    if (i / s == j / s) return i - j;
    const std::size_t query = i / s == j / s + 1 ? s + i % s : 2 * s - 1;
    return std::min(query, most) - j % s;
  }
  double score(const Row& q, const Row& k, std::size_t apart) const {
    const std::size_t half = q.size() / 2;
    const Row& turn = turns_[apart];
    double sum = 0;
    for (std::size_t c = 0; c < half; ++c) {
      sum += (q[c] * k[c] + q[c + half] * k[c + half]) * turn[c];
      sum += (q[c] * k[c + half] - q[c + half] * k[c]) * turn[c + half];
    }
    return sum;
  }

  const DualChunkConfig& config_;
  Rows turns_;  // by distance
};

constexpr double kLargestE4m3 = 448;

class Forward {
 public:
  Forward(const ModelConfig& model, const TensorSource& source, const KeptTokens& kept, std::size_t tokens,
          const DenseImages& images)
      : model_(model),
        source_(source),
        shard_(make_shard(model, ParallelLayout{}, 0)),
        kept_(kept),
        tokens_(tokens),
        images_(images),
        positions_(positions_of(turns_by_rows(model) ? images : DenseImages{}, tokens)) {}

  std::vector<double> run(std::span<const std::uint32_t> ids) {
    const RankWeights ends = load_ends(model_, shard_, WeightType::kFp32, source_);
    const std::size_t size = model_.hidden_size;
    std::vector<float> embedding(size);
    Rows x;
    for (const std::uint32_t id : ids) {
      ends.embedding.row(id, embedding.data());
      Row& row = x.emplace_back(embedding.begin(), embedding.end());
      for (double& value : row) value *= model_.embedding_scale;
    }
    const auto part = [&](const DenseImages::Row& row, std::size_t index) {
      const auto begin = row.values.begin() + static_cast<std::ptrdiff_t>(index * size);
      return Row(begin, begin + static_cast<std::ptrdiff_t>(size));
    };
    for (const DenseImages::Row& row : images_.rows) {
      if (row.place < tokens_) x[row.place] = part(row, 0);
    }
    dense::Streams streams;
    if (model_.is_compressed()) streams.assign(model_.compressed.streams, x);
    for (std::uint32_t i = 0; i < model_.num_layers; ++i) {
      if (model_.is_compressed()) {
        compressed_layer(i, ids, streams);
        continue;
      }
      layer(i, x);
      for (const DenseImages::Row& row : images_.rows) {
        if (row.place < tokens_ && (i + 2) * size <= row.values.size()) add(x[row.place], part(row, i + 1));
      }
    }
    if (model_.is_compressed()) x = dense::collapse_for_head(model_, ends.head_streams, streams);
    std::vector<double> logits;
    const double cap = model_.final_logit_cap;
    for (Row& row : times(ends.head_matrix(), norm(x, ends.final_norm))) {
      row.resize(model_.vocab_size);
      for (double logit : row) {
        logit *= model_.logit_scale;
        logits.push_back(cap > 0 ? cap * std::tanh(logit / cap) : logit);
      }
    }
    return logits;
  }

 private:
  static bool turns_by_rows(const ModelConfig& model) {
    return std::any_of(model.ropes.begin(), model.ropes.end(),
                       [](const RopeConfig& rope) { return rope.has_mrope(); });
  }

  // Of each token: text goes on one by one; an image takes as long as its longer side.
  static std::vector<std::array<std::size_t, 3>> positions_of(const DenseImages& images, std::size_t tokens) {
    std::vector<std::array<std::size_t, 3>> positions;
    std::size_t next = 0;
    for (const DenseImages::Span& span : images.spans) {
      for (; positions.size() < span.place; ++next) positions.push_back({next, next, next});
      for (std::size_t y = 0; y < span.rows; ++y) {
        for (std::size_t x = 0; x < span.columns; ++x) positions.push_back({next, next + y, next + x});
      }
      next += std::max(span.rows, span.columns);
    }
    for (; positions.size() < tokens; ++next) positions.push_back({next, next, next});
    return positions;
  }

  double offset() const { return model_.norm_plus_one ? 1 : 0; }

  Row norm(const Row& x, const std::vector<float>& weight) const {
    return model_.layer_norms ? layer_norm(x, weight, model_.rms_norm_eps)
                              : rms_norm(x, weight, model_.rms_norm_eps, offset());
  }
  Rows norm(const Rows& x, const std::vector<float>& weight) const {
    if (weight.empty()) return x;
    Rows out;
    for (const Row& row : x) out.push_back(norm(row, weight));
    return out;
  }

  void layer(std::uint32_t i, Rows& x) {
    const LayerWeights layer = load_layer(model_, shard_, WeightType::kFp32, source_, i);
    const Rows read = norm(x, layer.input_norm);
    Rows attended = attention(i, layer, read);
    if (model_.post_norms) attended = norm(attended, layer.post_attention_norm);
    for (std::size_t t = 0; t < tokens_; ++t) add(x[t], attended[t], model_.residual_scale);
    if (model_.layers[i].bare) return;
    Rows inner = model_.parallel_block
                     ? read
                     : norm(x, model_.post_norms ? layer.pre_feedforward_norm : layer.post_attention_norm);
    if (!model_.layers[i].moe) {
      inner = dense::mlp(model_, layer.mlp, inner);
    } else if (model_.moe.gemma_router) {
      inner = norm(dense::mlp(model_, layer.moe.shared, inner), layer.moe.dense_post_norm);
      const Rows routed = norm(dense::routed_experts(model_, layer.moe, norm(x, layer.moe.router_norm),
                                                     norm(x, layer.moe.pre_norm)),
                               layer.moe.post_norm);
      for (std::size_t t = 0; t < tokens_; ++t) add(inner[t], routed[t]);
    } else {
      inner = dense::experts(model_, layer.moe, inner);
    }
    if (model_.post_norms) inner = norm(inner, layer.post_feedforward_norm);
    for (std::size_t t = 0; t < tokens_; ++t) {
      add(x[t], inner[t], model_.residual_scale);
      for (double& value : x[t]) value *= layer.scalar;
    }
  }

  void compressed_layer(std::uint32_t i, std::span<const std::uint32_t> ids, dense::Streams& streams) const {
    const LayerWeights layer = load_layer(model_, shard_, WeightType::kFp32, source_, i);
    const PlainRope rope = this->rope(model_.ropes[model_.layers[i].rope], model_.compressed.rope_head_dim);
    dense::through(model_, layer.attention_streams, streams, [&](const Rows& x) {
      return dense::compressed_attention(model_, model_.layers[i], layer, rope, norm(x, layer.input_norm));
    });
    dense::through(model_, layer.mlp_streams, streams, [&](const Rows& x) {
      return dense::experts(model_, layer.moe, norm(x, layer.post_attention_norm), ids);
    });
  }

  PlainRope rope(const RopeConfig& config, std::size_t dim) const {
    return {config, dim, static_cast<double>(model_.max_position_embeddings), static_cast<double>(tokens_)};
  }

  Rows attention(std::uint32_t i, const LayerWeights& layer, const Rows& x) {
    if (model_.layers[i].linear) {
      if (model_.linear.kind == LinearKind::kMamba2) return mamba2(layer.linear, x);
      return model_.linear.kind == LinearKind::kShortConv ? short_conv(layer.linear, x)
                                                          : linear_attention(layer.linear, x);
    }
    return model_.is_mla() ? latent_attention(i, layer, x) : head_attention(i, layer, x);
  }

  // Columns [first, first + count) of every row.
  static Rows columns(const Rows& x, std::size_t first, std::size_t count) {
    Rows out;
    for (const Row& row : x) {
      const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
      out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return out;
  }

  void norm_columns(Row& row, std::size_t first, const std::vector<float>& weight) const {
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
    const Row normed = rms_norm(Row(begin, begin + static_cast<std::ptrdiff_t>(weight.size())), weight,
                                model_.rms_norm_eps, offset());
    std::copy(normed.begin(), normed.end(), begin);
  }

  Rows head_attention(std::uint32_t i, const LayerWeights& layer, const Rows& x) const {
    const AttentionHeads heads = model_.heads_of(model_.layers[i]);
    const std::size_t dim = heads.head_dim;
    const bool rotates = model_.layers[i].rope != LayerConfig::kNoRope;
    const RopeConfig& rotation = model_.ropes[rotates ? model_.layers[i].rope : 0];
    const PlainRope rope = this->rope(rotation, model_.rope_dim(rotation));
    Rows qkv = times(layer.qkv, x, layer.qkv_bias);
    const std::size_t q_dim = model_.attn_output_gate ? 2 * dim : dim;  // a head's query, and its gate
    const std::size_t first_k = heads.num_heads * q_dim;
    const std::size_t first_v = first_k + heads.num_kv_heads * dim;
    Rows gates;
    if (model_.head_gates) gates = times(layer.head_gates, x);
    const bool chunks = model_.dual_chunk.enabled();
    for (Row& row : qkv) {
      if (!model_.qk_norm_over_heads) break;
      norm_columns(row, 0, layer.q_norm);
      norm_columns(row, first_k, layer.k_norm);
    }
    // Each head has weights of its own where there are as many.
    const auto turned = [&](std::size_t first, const std::vector<float>& weights, std::size_t head) {
      Rows rows = columns(qkv, first, dim);
      const bool normed = !weights.empty() && !model_.qk_norm_over_heads;
      const auto begin = weights.begin() + static_cast<std::ptrdiff_t>(weights.size() > dim ? head * dim : 0);
      const std::vector<float> own =
          normed ? std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(dim)) : weights;
      for (std::size_t t = 0; t < rows.size(); ++t) {
        if (normed && !model_.qk_norm_rotated) rows[t] = norm(rows[t], own);
        if (!chunks && rotates) rope.rotate(rows[t].data(), positions_[t]);
        if (normed && model_.qk_norm_rotated) rows[t] = norm(rows[t], own);
        if (model_.qk_l2_norm && rotates)
          rows[t] = rms_norm(rows[t], std::vector<float>(dim, 1.0F), model_.rms_norm_eps, 0);
      }
      return rows;
    };
    // Llama 4, where nothing rotates, and Ministral 3: queries far back grow.
    const auto tuned = [&](Rows rows) {
      const TemperatureTuning& tuning = model_.temperature_tuning;
      if ((rotates && !tuning.everywhere) || tuning.floor_scale == 0) return rows;
      for (std::size_t t = 0; t < rows.size(); ++t) {
        const double turns =
            std::floor((static_cast<double>(t) + (tuning.everywhere ? 0 : 1)) / tuning.floor_scale);
        for (double& value : rows[t]) value *= 1 + tuning.attn_scale * std::log1p(turns);
      }
      return rows;
    };
    std::optional<ChunkedAttention> chunked;
    if (chunks) chunked.emplace(model_.dual_chunk, rope, dim, tokens_);
    Rows joined(tokens_);
    const std::size_t group = heads.num_heads / heads.num_kv_heads;
    std::vector<std::vector<bool>> chosen;  // blocks of the KV head
    for (std::size_t h = 0; h < heads.num_heads; ++h) {
      if (model_.layers[i].indexer && h % group == 0)
        chosen = chosen_blocks(layer.indexer, x, rope, h / group);
      const Rows q = turned(h * q_dim, layer.q_norm, h);
      const Rows k = kept(turned(first_k + h / group * dim, layer.k_norm, h / group));
      const std::size_t v_dim = heads.value_dim();
      Rows values = columns(qkv, (heads.keys_are_values ? first_k : first_v) + h / group * v_dim, v_dim);
      for (Row& row : values)
        for (double& value : row) value *= model_.value_scale;
      for (std::size_t t = 0; model_.value_norm && t < tokens_; ++t)
        values[t] = rms_norm(values[t], std::vector<float>(dim, 1.0F), model_.rms_norm_eps, 0);
      const Rows v = kept(std::move(values));
      Rows out = chunks ? chunked->attend(q, k, v,
                                          model_.attention_scale *
                                              model_.dual_chunk.scaling(static_cast<std::uint32_t>(tokens_)))
                        : attend(tuned(q), k, v, model_.attention_scale, model_.attention_logit_cap,
                                 model_.layers[i], layer.sinks.empty() ? nullptr : &layer.sinks[h],
                                 chosen.empty() ? nullptr : &chosen, images_.ends);
      for (std::size_t t = 0; t < tokens_; ++t) {
        for (std::size_t c = 0; model_.attn_output_gate && c < dim; ++c)
          out[t][c] *= opened(qkv[t][h * q_dim + dim + c]);
        for (std::size_t c = 0; model_.head_gates && c < v_dim; ++c) out[t][c] *= opened(gates[t][h]);
        joined[t].insert(joined[t].end(), out[t].begin(), out[t].end());
      }
    }
    return times(layer.o, joined, layer.o_bias);
  }

  // MiniMax M3: of each token and those up to it, whether it attends with `head`.
  std::vector<std::vector<bool>> chosen_blocks(const IndexerWeights& layer, const Rows& x,
                                               const PlainRope& rope, std::size_t head) const {
    const std::size_t dim = model_.indexer.head_dim, block = model_.indexer.block;
    Rows q = columns(times(layer.q, x), head * dim, dim), k = times(layer.k, x);
    for (std::size_t t = 0; t < tokens_; ++t) {
      q[t] = rms_norm(q[t], layer.q_norm, model_.rms_norm_eps, offset());
      k[t] = rms_norm(k[t], layer.k_norm, model_.rms_norm_eps, offset());
      rope.rotate(q[t].data(), t);
      rope.rotate(k[t].data(), t);
      k[t] = kept(k[t]);
    }
    std::vector<std::vector<bool>> chosen(tokens_, std::vector<bool>(tokens_, false));
    for (std::size_t t = 0; t < tokens_; ++t) {
      std::vector<std::pair<double, std::size_t>> order;  // score downwards, place upwards
      for (std::size_t b = 0; b <= t / block; ++b) {
        double best = -HUGE_VAL;
        for (std::size_t j = b * block; j <= t && j < (b + 1) * block; ++j) {
          double product = 0;
          for (std::size_t c = 0; c < dim; ++c) product += q[t][c] * k[j][c];
          best = std::max(best, product);
        }
        if (b + model_.indexer.local_blocks > t / block) best = HUGE_VAL;
        order.emplace_back(-best, b);
      }
      std::sort(order.begin(), order.end());
      for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), model_.indexer.top_k / block); ++i) {
        for (std::size_t j = order[i].second * block; j <= t && j < (order[i].second + 1) * block; ++j)
          chosen[t][j] = true;
      }
    }
    return chosen;
  }

  double opened(double gate) const {
    return model_.softplus_gates ? std::log1p(std::exp(gate)) : 1 / (1 + std::exp(-gate));
  }

  // The indexer of sparse attention: for every token, which of those up to it are attended. q_in: what the
  // queries are projected from.
  void choose(const IndexerWeights& layer, const Rows& x, const Rows& q_in) {
    const IndexerConfig& indexer = model_.indexer;
    const std::size_t dim = indexer.head_dim;
    const PlainRope rope = this->rope(model_.ropes[indexer.rope], model_.mla.qk_rope_head_dim);
    const Rows q = times(layer.q, q_in);
    Rows k = times(layer.k, x);
    const Rows weights = times(layer.heads, x);
    for (std::size_t t = 0; t < tokens_; ++t) {
      double mean = 0, square = 0;
      for (const double v : k[t]) mean += v / static_cast<double>(dim);
      for (const double v : k[t]) square += (v - mean) * (v - mean) / static_cast<double>(dim);
      for (std::size_t c = 0; c < dim; ++c)
        k[t][c] = (k[t][c] - mean) / std::sqrt(square + 1e-6) * layer.k_norm[c] + layer.k_norm_bias[c];
      rope.rotate(k[t].data(), t);
      k[t] = kept_.format == NumberFormat::kFp8E4M3 ? indexed(k[t]) : kept(k[t]);
    }
    chosen_.assign(tokens_, std::vector<bool>(tokens_, false));
    std::vector<Rows> heads;
    for (std::size_t h = 0; h < indexer.num_heads; ++h) {
      heads.push_back(columns(q, h * dim, dim));
      for (std::size_t t = 0; t < tokens_; ++t) {
        rope.rotate(heads[h][t].data(), t);
        if (kept_.format == NumberFormat::kFp8E4M3) heads[h][t] = indexed(heads[h][t]);
      }
    }
    for (std::size_t t = 0; t < tokens_; ++t) {
      std::vector<std::pair<double, std::size_t>> order;  // score downwards, position upwards
      for (std::size_t j = 0; j <= t; ++j) {
        double score = 0;
        for (std::size_t h = 0; h < indexer.num_heads; ++h) {
          double product = 0;
          for (std::size_t c = 0; c < dim; ++c) product += heads[h][t][c] * k[j][c];
          score += weights[t][h] * std::max(product, 0.0);
        }
        order.emplace_back(-score, j);
      }
      std::sort(order.begin(), order.end());
      for (std::size_t j = 0; j < std::min<std::size_t>(order.size(), indexer.top_k); ++j)
        chosen_[t][order[j].second] = true;
    }
  }

  static Row unit(const double* x, std::size_t size) {
    double sum = 1e-6;
    for (std::size_t i = 0; i < size; ++i) sum += x[i] * x[i];
    Row out(x, x + size);
    for (double& value : out) value /= std::sqrt(sum);
    return out;
  }

  // LFM2: in [x, B, C], y = C conv(B x).
  Rows short_conv(const LinearAttentionWeights& layer, const Rows& x) const {
    const std::size_t channels = model_.hidden_size;
    const std::size_t kernel = model_.linear.conv_kernel;
    const Rows in = times(layer.qkvz, x);
    Rows out(tokens_, Row(channels, 0.0));
    for (std::size_t t = 0; t < tokens_; ++t) {
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t i = 0; i < kernel && i <= t; ++i)
          out[t][c] += in[t - i][c] * in[t - i][channels + c] * layer.conv[c * kernel + kernel - 1 - i];
        out[t][c] *= in[t][2 * channels + c];
      }
    }
    return times(layer.out, out);
  }

  // The gated delta rule (Yang et al. 2024): S <- S exp(g) (I - b k k^T) + b v k^T, o = S q, S [v_dim,
  // k_dim]; g is a number, or with KDA a diagonal matrix.
  Rows linear_attention(const LinearAttentionWeights& layer, const Rows& x) const {
    const LinearAttentionConfig& linear = model_.linear;
    const std::size_t k_dim = linear.key_head_dim;
    const std::size_t v_dim = linear.value_head_dim;
    const std::size_t kernel = linear.conv_kernel;
    const std::size_t channels = 2 * linear.key_dim() + linear.value_dim();
    const Rows in = times(layer.qkvz, x);  // channels of the convolution, then gates of the output
    const Rows ba = times(layer.ba, x);    // write strengths, then decays
    const bool kda = linear.kind == LinearKind::kKda;
    Rows paces, gates;
    if (kda) {
      const Rows narrow = times(layer.narrow, x);
      paces = times(layer.decays, columns(narrow, 0, k_dim));
      gates = times(layer.gates, columns(narrow, k_dim, k_dim));
    }
    Rows joined(tokens_);
    std::vector<Rows> states(linear.num_value_heads, Rows(v_dim, Row(k_dim, 0.0)));
    for (std::size_t t = 0; t < tokens_; ++t) {
      Row qkv(channels, 0.0);
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t i = 0; i < kernel && i <= t; ++i)
          qkv[c] += in[t - i][c] * layer.conv[c * kernel + kernel - 1 - i];
        qkv[c] /= 1 + std::exp(-qkv[c]);
      }
      for (std::size_t h = 0; h < linear.num_value_heads; ++h) {
        const std::size_t key_head = h * linear.num_key_heads / linear.num_value_heads;
        const Row q = unit(qkv.data() + key_head * k_dim, k_dim);
        const Row k = unit(qkv.data() + linear.key_dim() + key_head * k_dim, k_dim);
        const double* const v = qkv.data() + std::size_t{2} * linear.key_dim() + h * v_dim;
        Row decay;
        for (std::size_t i = 0; i < k_dim; ++i) {
          const std::size_t of = kda ? h * k_dim + i : h;
          const double pace = (kda ? paces[t][of] : ba[t][linear.num_value_heads + h]) + layer.dt_bias[of];
          decay.push_back(std::exp(-std::exp(double{layer.a_log[h]}) * std::log1p(std::exp(pace))));
        }
        const double strength = 1 / (1 + std::exp(-ba[t][h]));
        Row out;
        for (std::size_t j = 0; j < v_dim; ++j) {
          Row& row = states[h][j];
          double known = 0;
          for (std::size_t i = 0; i < k_dim; ++i) known += (row[i] *= decay[i]) * k[i];
          double said = 0;
          for (std::size_t i = 0; i < k_dim; ++i) {
            row[i] += strength * (v[j] - known) * k[i];
            said += row[i] * q[i] / std::sqrt(static_cast<double>(k_dim));
          }
          out.push_back(said);
        }
        out = rms_norm(out, layer.norm, model_.rms_norm_eps, 0);
        for (std::size_t j = 0; j < v_dim; ++j) {
          const double z = kda ? gates[t][h * v_dim + j] : in[t][channels + h * v_dim + j];
          joined[t].push_back(out[j] * (kda ? 1 : z) / (1 + std::exp(-z)));
        }
      }
    }
    return times(layer.out, joined);
  }

  // Mamba 2: H <- exp(-exp(A) d) H + d x B^T, y = H C + D x, in [x, B, C] after a convolution; then y
  // silu(z), normed by groups.
  Rows mamba2(const LinearAttentionWeights& layer, const Rows& x) const {
    const LinearAttentionConfig& linear = model_.linear;
    const std::size_t inner = linear.value_dim(), groups = linear.num_key_heads, size = inner / groups;
    const std::size_t channels = inner + std::size_t{2} * linear.key_dim(), kernel = linear.conv_kernel;
    const std::size_t width = linear.value_head_dim, states = linear.key_head_dim;
    const Rows in = times(layer.qkvz, x);
    Rows state(inner, Row(states, 0.0)), out;
    for (std::size_t t = 0; t < tokens_; ++t) {
      Row mixed(channels);
      for (std::size_t c = 0; c < channels; ++c) {
        mixed[c] = layer.conv_bias.empty() ? 0 : layer.conv_bias[c];
        for (std::size_t i = 0; i < kernel && i <= t; ++i)
          mixed[c] += in[t - i][c] * layer.conv[c * kernel + kernel - 1 - i];
        mixed[c] /= 1 + std::exp(-mixed[c]);
      }
      Row y(inner);
      for (std::size_t c = 0; c < inner; ++c) {
        const std::size_t head = c / width;
        const double* const b = mixed.data() + inner + c / size * states;
        const double step = std::log1p(std::exp(in[t][channels + inner + head] + layer.dt_bias[head]));
        const double decay = std::exp(-std::exp(double{layer.a_log[head]}) * step);
        y[c] = layer.skip[head] * mixed[c];
        for (std::size_t n = 0; n < states; ++n) {
          state[c][n] = decay * state[c][n] + step * mixed[c] * b[n];
          y[c] += state[c][n] * b[linear.key_dim() + n];
        }
        y[c] *= in[t][channels + c] / (1 + std::exp(-in[t][channels + c]));
      }
      for (std::size_t g = 0; g < inner; g += size) {
        double squares = 0;
        for (std::size_t c = g; c < g + size; ++c) squares += y[c] * y[c] / static_cast<double>(size);
        for (std::size_t c = g; c < g + size; ++c)
          y[c] *= layer.norm[c] / std::sqrt(squares + model_.rms_norm_eps);
      }
      out.push_back(std::move(y));
    }
    return times(layer.out, out);
  }

  // Keys and values spelled out per head.
  Rows latent_attention(std::uint32_t i, const LayerWeights& layer, const Rows& x) {
    const MlaConfig& mla = model_.mla;
    const MlaWeights& weights = layer.mla;
    const bool rotates = model_.layers[i].rope != LayerConfig::kNoRope;
    const PlainRope rope =
        this->rope(model_.ropes[rotates ? model_.layers[i].rope : 0], mla.qk_rope_head_dim);
    Rows q_in = x;
    if (mla.q_lora_rank > 0) {
      q_in = times(weights.q_a, x);
      for (Row& row : q_in) row = rms_norm(row, weights.q_a_norm, model_.rms_norm_eps, 0);
    }
    if (model_.layers[i].indexer) choose(layer.indexer, x, q_in);
    const Rows q = times(weights.q_b, q_in);
    const Rows joint = times(weights.kv_a, x);
    Rows latent;
    Rows shared;  // the rotated part of every head's key
    for (std::size_t t = 0; t < tokens_; ++t) {
      const auto cut = joint[t].begin() + mla.kv_lora_rank;
      latent.push_back(rms_norm(Row(joint[t].begin(), cut), weights.kv_a_norm, model_.rms_norm_eps, 0));
      shared.emplace_back(cut, joint[t].end());
      if (rotates) rope.rotate(shared.back().data(), t);
    }
    LatentKeys exact = {latent, shared, {}};
    keep_latents(latent, shared);
    LatentKeys kept = {std::move(latent), std::move(shared), {}};
    kept.kv = times(weights.expand, kept.latent);
    if (!kept_.expanded_passes.empty()) exact.kv = times(weights.expand, exact.latent);
    Rows joined(tokens_);
    for (std::size_t h = 0; h < model_.num_attention_heads; ++h) {
      Rows queries = columns(q, h * model_.head_dim, model_.head_dim);
      for (std::size_t t = 0; rotates && t < tokens_; ++t)
        rope.rotate(queries[t].data() + mla.qk_nope_head_dim, t);
      Rows out = attend_latents(i, h, queries, kept, kept, 0, 0);
      for (const auto& [first, last] : kept_.expanded_passes) {
        const Rows of_pass = attend_latents(i, h, queries, kept, exact, first, last);
        for (std::size_t t = first; t < std::min<std::size_t>(last, tokens_); ++t) out[t] = of_pass[t];
      }
      for (std::size_t t = 0; t < tokens_; ++t)
        joined[t].insert(joined[t].end(), out[t].begin(), out[t].end());
    }
    return times(layer.o, joined);
  }

  // Latents and rotated parts of all tokens, and what kv_b_proj makes of the latents.
  struct LatentKeys {
    Rows latent, shared, kv;
  };
  // Attention of one head over `of`, but over `own` where the tokens are in [first, last).
  Rows attend_latents(std::uint32_t i, std::size_t head, const Rows& queries, const LatentKeys& of,
                      const LatentKeys& own, std::size_t first, std::size_t last) const {
    const std::size_t nope = model_.mla.qk_nope_head_dim;
    const std::size_t rows = nope + model_.mla.v_head_dim;
    Rows keys, values;
    for (std::size_t t = 0; t < tokens_; ++t) {
      const LatentKeys& from = t >= first && t < last ? own : of;
      const auto begin = from.kv[t].begin() + static_cast<std::ptrdiff_t>(head * rows);
      const auto cut = begin + static_cast<std::ptrdiff_t>(nope);
      keys.emplace_back(begin, cut);
      keys.back().insert(keys.back().end(), from.shared[t].begin(), from.shared[t].end());
      values.emplace_back(cut, begin + static_cast<std::ptrdiff_t>(rows));
    }
    return attend(queries, keys, values, model_.attention_scale, 0, model_.layers[i], nullptr,
                  model_.is_sparse() ? &chosen_ : nullptr);
  }

  Row kept(const Row& row) const {
    return kept_.format == NumberFormat::kFp32 ? row : stored(kept_.format, row);
  }
  Rows kept(Rows rows) const {
    for (Row& row : rows) row = kept(row);
    return rows;
  }
  // Of MLA: a latent and, after it, the rotated part of the keys.
  void keep_latents(Rows& latents, Rows& shared) const {
    for (std::size_t t = 0; t < tokens_; ++t) {
      if (kept_.scaled_latents) {
        latents[t] = scaled(latents[t], [](double largest) { return largest / kLargestE4m3; });
        shared[t] = stored(NumberFormat::kBf16, shared[t]);
        continue;
      }
      const std::size_t cut = latents[t].size();
      latents[t].insert(latents[t].end(), shared[t].begin(), shared[t].end());
      const Row both = kept(latents[t]);
      latents[t].assign(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(cut));
      shared[t].assign(both.begin() + static_cast<std::ptrdiff_t>(cut), both.end());
    }
  }
  // An fp8 cache's index keys, and the queries that meet them, have powers of two as their scales.
  Row indexed(const Row& key) const {
    return scaled(key,
                  [](double largest) { return std::exp2(std::ceil(std::log2(largest / kLargestE4m3))); });
  }

  const ModelConfig& model_;
  const TensorSource& source_;
  const Shard shard_;
  const KeptTokens kept_;
  std::size_t tokens_;
  const DenseImages& images_;
  const std::vector<std::array<std::size_t, 3>> positions_;
  std::vector<std::vector<bool>> chosen_;  // sparse attention: of the last layer that chose
};

}  // namespace

DenseReference::DenseReference(const ModelConfig& model, const TensorSource& weights, const KeptTokens& kept)
    : model_(model), weights_(weights), kept_(kept) {}

std::vector<double> DenseReference::forward(std::span<const std::uint32_t> tokens,
                                            const DenseImages& images) const {
  return Forward(model_, weights_, kept_, tokens.size(), images).run(tokens);
}

}  // namespace tpsim::rank
