#include "rank/numeric/diffusion/z_image_block.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

using Turns = std::vector<Rotation>;

// The root mean square norm, times a factor of each column.
Rows scaled(const Rows& x, const TowerNorm& norm, const float* factors) {
  const auto width = static_cast<std::uint32_t>(norm.weight.size());
  Rows weight(width), out(x.size());
  for (std::uint32_t i = 0; i < width; ++i) weight[i] = norm.weight[i] * factors[i];
  for (std::size_t at = 0; at < x.size(); at += width)
    rms_norm(x.data() + at, width, weight.data(), 0, norm.eps, out.data() + at);
  return out;
}

// Factors of a block's four norms: before and after attention, before and after the MLP.
std::array<Rows, 4> factors(const ZImageBlock& block, const Rows& condition, ThreadPool& pool) {
  const auto width = static_cast<std::uint32_t>(block.before_attention.weight.size());
  std::array<Rows, 4> out;
  out.fill(Rows(width, 1));
  if (block.modulation.bias.empty()) return out;
  const Rows table = product(block.modulation, condition, pool);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::uint32_t at = 0; at < width; ++at) {
      const float value = table[i * width + at];
      out[i][at] = i % 2 == 0 ? 1 + value : std::tanh(value);
    }
  }
  return out;
}

struct ZImageHeads {
  Rows q, k, v;
};
ZImageHeads heads_of(const ZImageBlock& block, std::uint32_t shard, const float* factor, const Turns& turns,
                     const Rows& x, ThreadPool& pool) {
  const Rows in = scaled(x, block.before_attention, factor);
  // Of these norms Diffusers' eps is its own, whatever norm_eps.
  ZImageHeads out{headed(block.q.shards[shard], block.norm_q, 1e-5F, in, pool),
                  headed(block.k.shards[shard], block.norm_k, 1e-5F, in, pool),
                  product(block.v.shards[shard], in, pool)};
  const std::uint32_t heads =
      block.q.shards[shard].weight.n() / static_cast<std::uint32_t>(block.norm_q.size());
  turn_rows(turns, heads, out.q);
  turn_rows(turns, heads, out.k);
  return out;
}
void add_rest(const ZImageBlock& block, const std::array<Rows, 4>& by, const PerRank& met, PerRank& x,
              SequenceRanks& ranks) {
  // What `part` makes of a rank goes through `layer`, is summed, normed and added.
  const auto add_sums = [&](const CutLinear& layer, const TowerNorm& norm, const Rows& factor,
                            const auto& part) {
    PerRank parts;
    for (std::uint32_t i = 0; i < x.size(); ++i)
      parts.push_back(product(layer.shards[ranks.shard(i)], part(i), ranks.pool()));
    ranks.reduce(parts, layer.bias);
    for (std::size_t i = 0; i < x.size(); ++i)
      add(x[i].data(), scaled(parts[i], norm, factor.data()).data(), x[i].size());
  };
  add_sums(block.out, block.after_attention, by[1], [&](std::uint32_t i) { return met[i]; });
  add_sums(block.down, block.after_mlp, by[3], [&](std::uint32_t i) {
    const std::uint32_t shard = ranks.shard(i);
    const Rows in = scaled(x[i], block.before_mlp, by[2].data());
    Rows gate = product(block.gate.shards[shard], in, ranks.pool());
    const Rows up = product(block.up.shards[shard], in, ranks.pool());
    silu_and_mul(gate.data(), up.data(), static_cast<std::uint32_t>(gate.size()), gate.data());
    return gate;
  });
}
}  // namespace

void ZImageBlock::forward(const Rows& condition, const std::vector<Turns>& turns, PerRank& x,
                          SequenceRanks& ranks, const Attend& attend) const {
  const std::array<Rows, 4> by = factors(*this, condition, ranks.pool());
  PerRank queries, keys, values, met;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    ZImageHeads heads = heads_of(*this, ranks.shard(i), by[0].data(), turns[i], x[i], ranks.pool());
    queries.push_back(std::move(heads.q));
    keys.push_back(std::move(heads.k));
    values.push_back(std::move(heads.v));
  }
  attend(queries, keys, values, met);
  add_rest(*this, by, met, x, ranks);
}

ZImageBlock read_z_image_block(const CutReader& cut, const std::string& at, const ZImageSizes& sizes,
                               bool modulated) {
  const std::uint32_t width = sizes.width;
  const auto norm = [&](const std::string& name) {
    return cut.reader.norm(at + name, width, sizes.eps, /*rms=*/true);
  };
  ZImageBlock out{.modulation = {},
                  .before_attention = norm("attention_norm1"),
                  .after_attention = norm("attention_norm2"),
                  .before_mlp = norm("ffn_norm1"),
                  .after_mlp = norm("ffn_norm2"),
                  .q = cut.columns(at + "attention.to_q", width, width),
                  .k = cut.columns(at + "attention.to_k", width, width),
                  .v = cut.columns(at + "attention.to_v", width, width),
                  .out = cut.rows(at + "attention.to_out.0", width, width),
                  .gate = cut.columns(at + "feed_forward.w1", sizes.mlp, width),
                  .up = cut.columns(at + "feed_forward.w3", sizes.mlp, width),
                  .down = cut.rows(at + "feed_forward.w2", width, sizes.mlp),
                  .norm_q = cut.reader.tensor(at + "attention.norm_q.weight", {sizes.dim}),
                  .norm_k = cut.reader.tensor(at + "attention.norm_k.weight", {sizes.dim})};
  if (modulated)
    out.modulation = cut.reader.whole(at + "adaLN_modulation.0", 4 * width, {sizes.condition}, /*bias=*/true);
  return out;
}

}  // namespace tpsim::rank
