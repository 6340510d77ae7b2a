#include "rank/numeric/diffusion/joint_streams.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"

namespace tpsim::rank {

SequenceRanks::OfPrompts tokens_of(std::span<const TextEmbeddings> texts) {
  return {texts.front().tokens, texts.back().tokens};
}

Rows rows_of(const Rows& rows, std::uint32_t width, const Share& share) {
  const auto first = rows.begin() + static_cast<std::ptrdiff_t>(share.first) * width;
  return {first, first + static_cast<std::ptrdiff_t>(share.count) * width};
}

Rows headed(const TowerLinear& linear, const Rows& norm, float eps, const Rows& x, ThreadPool& pool) {
  Rows out = product(linear, x, pool);
  const auto dim = static_cast<std::uint32_t>(norm.size());
  for (std::size_t at = 0; at < out.size(); at += dim)
    rms_norm(out.data() + at, dim, norm.data(), 0, eps, out.data() + at);
  return out;
}

namespace {

// That of a rank's prompt, or of all.
template <typename T>
const T& of_prompt(std::span<const T> all, std::uint32_t rank, const SequenceRanks& ranks) {
  return all[all.size() > 1 ? ranks.prompt(rank) : 0];
}

}  // namespace

JointSequence::JointSequence(const LatentShape& shape, const SequenceRanks::OfPrompts& text,
                             std::uint32_t images)
    : shape_(shape), text_(text), grid_{images, shape[2] / 2, shape[3] / 2} {
  if (shape[1] != 1)
    throw_user_error("--latent-size: the transformer makes images, of 1 frame, and not of {}", shape[1]);
}

JointTokens JointSequence::tokens(std::uint32_t i, const SequenceRanks& ranks) const {
  const std::uint32_t prompt = ranks.prompt(i), text = text_[prompt];
  const Share share = ranks.tokens(i, count(prompt));
  JointTokens out;
  out.text.first = std::min(share.first, text);
  out.text.count = std::min(share.first + share.count, text) - out.text.first;
  out.image = {std::max(share.first, text) - text, share.count - out.text.count};
  return out;
}

Rows JointSequence::patches(std::span<const float> latents, const Share& image) const {
  Rows out;
  const std::size_t plane = std::size_t{shape_[2]} * shape_[3], images = grid_[0];
  for_patches({shape_[0], grid_[0], shape_[2], shape_[3]}, kJointPatch, grid_, image,
              [&](std::uint32_t, std::uint32_t channel, std::size_t at) {
                const std::size_t from = at / plane % images;
                out.push_back(latents[(from * shape_[0] + channel) * plane + at % plane]);
              });
  return out;
}

SequenceRanks::Call JointSequence::call(std::uint32_t heads, std::uint32_t dim) const {
  return {.heads = heads, .dim = dim, .grid = grid_, .text = text_};
}

std::vector<std::vector<float>> JointSequence::finish(const TowerLinear& norm, const TowerLinear& proj,
                                                      std::span<const Rows> conditions, const PerRank& x,
                                                      SequenceRanks& ranks, bool channels_last) const {
  const std::uint32_t width = proj.weight.k();
  PerRank rows, last;
  for (const Rows& condition : conditions) last.push_back(product(norm, condition, ranks.pool()));
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    const float* const table = of_prompt<Rows>(last, i, ranks).data();
    rows.push_back(product(proj, modulated(x[i], width, kJointEps, table + width, table), ranks.pool()));
  }
  return unpatched(rows, ranks, channels_last);
}

std::vector<std::vector<float>> JointSequence::unpatched(const PerRank& rows, SequenceRanks& ranks,
                                                         bool channels_last) const {
  std::vector<std::vector<float>> out;
  for (const Rows& all : ranks.gather(rows, {count(0), count(1)}, 4 * shape_[0])) {
    const std::uint32_t places = 4;
    const std::size_t size = places * shape_[0], text = text_[out.size()] * size;
    std::size_t from = 0;
    std::vector<float>& latents = out.emplace_back(elements(shape_));
    for_patches(shape_, kJointPatch, {1, grid_[1], grid_[2]}, {0, grid_[1] * grid_[2]},
                [&](std::uint32_t token, std::uint32_t channel, std::size_t at) {
                  const std::size_t place = from++ % places;
                  const std::size_t in =
                      channels_last ? place * shape_[0] + channel : channel * places + place;
                  latents[at] = all[text + token * size + in];
                });
  }
  return out;
}

namespace {

// Text rows, then those of the image.
std::array<Rows, 2> streams(const Rows& x, const JointTokens& tokens, std::uint32_t width) {
  return {rows_of(x, width, {0, tokens.text.count}),
          rows_of(x, width, {tokens.text.count, tokens.image.count})};
}

// What `down` reads.
Rows mlp_hidden(const JointStream& stream, std::uint32_t shard, const Rows& in, ThreadPool& pool) {
  const TowerLinear& up = stream.up.shards[shard];
  Rows hidden = product(up, in, pool);
  if (!stream.gated) {
    activate(TowerActivation::kGeluTanh, hidden.data(), hidden.size());
    return hidden;
  }
  const std::uint32_t half = up.weight.n() / 2;
  Rows out(hidden.size() / 2);
  for (std::size_t at = 0; at < out.size(); at += half)
    silu_and_mul(hidden.data() + 2 * at, hidden.data() + 2 * at + half, half, out.data() + at);
  return out;
}

}  // namespace

JointTables modulations(const std::array<JointStream, 2>& block, const Rows& condition, ThreadPool& pool) {
  return {product(block[0].modulation, condition, pool), product(block[1].modulation, condition, pool)};
}

JointStream read_joint_stream(const CutReader& reader, const std::string& attention, bool text,
                              const std::string& modulation, const std::string& up, const std::string& down,
                              std::uint32_t width, std::uint32_t dim, bool last) {
  const auto projection = [&](const std::string& name) {
    return reader.columns(attention + (text ? "add_" + name + "_proj" : "to_" + name), width, width);
  };
  const std::string norm = attention + (text ? "norm_added_" : "norm_");
  JointStream out{
      .modulation = reader.reader.whole(modulation, (last ? 2 : 6) * width, {width}, /*bias=*/true),
      .q = projection("q"),
      .k = projection("k"),
      .v = projection("v"),
      .out = {},
      .up = {},
      .down = {},
      .norm_q = reader.reader.tensor(norm + "q.weight", {dim}),
      .norm_k = reader.reader.tensor(norm + "k.weight", {dim})};
  if (last) return out;
  out.out = reader.rows(attention + (text ? "to_add_out" : "to_out.0"), width, width);
  out.up = reader.columns(up, kJointMlpRatio * width, width);
  out.down = reader.rows(down, width, kJointMlpRatio * width);
  return out;
}

void forward_joint(const std::array<JointStream, 2>& block, std::span<const JointTables> tables,
                   const SequenceRanks::Call& call, const std::vector<JointTokens>& tokens, PerRank& x,
                   SequenceRanks& ranks) {
  ThreadPool& pool = ranks.pool();
  const std::uint32_t width = block[0].q.shards[0].weight.k(), mine = call.heads * call.dim;
  const auto table = [&](std::uint32_t rank, std::size_t s, std::size_t i) {
    return of_prompt(tables, rank, ranks)[s].data() + i * width;
  };
  PerRank q(x.size()), k(x.size()), v(x.size()), met;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    const std::uint32_t shard = ranks.shard(i);
    const std::array<Rows, 2> rows = streams(x[i], tokens[i], width);
    for (std::size_t s = 0; s < 2; ++s) {
      const Rows in = modulated(rows[s], width, kJointEps, table(i, s, 0), table(i, s, 1));
      q[i] = concatenated(std::move(q[i]),
                          headed(block[s].q.shards[shard], block[s].norm_q, kJointEps, in, pool));
      k[i] = concatenated(std::move(k[i]),
                          headed(block[s].k.shards[shard], block[s].norm_k, kJointEps, in, pool));
      v[i] = concatenated(std::move(v[i]), product(block[s].v.shards[shard], in, pool));
    }
    turn_rows(tokens[i].turns, call.heads, q[i]);
    turn_rows(tokens[i].turns, call.heads, k[i]);
  }
  ranks.attend(call, q, k, v, met);
  std::vector<std::array<Rows, 2>> rows;
  for (std::size_t i = 0; i < x.size(); ++i) rows.push_back(streams(x[i], tokens[i], width));
  // What `part` makes of shard and tokens goes through `layer`, is summed, and added with the table's gate.
  const auto add_sums = [&](std::size_t s, const CutLinear& layer, std::size_t gate, const auto& part) {
    PerRank parts;
    for (std::uint32_t i = 0; i < x.size(); ++i)
      parts.push_back(product(layer.shards[ranks.shard(i)], part(i), pool));
    ranks.reduce(parts, layer.bias);
    for (std::uint32_t i = 0; i < x.size(); ++i) add_gated(rows[i][s], parts[i], table(i, s, gate), width);
  };
  for (std::size_t s = 0; s < 2; ++s) {
    if (block[s].out.shards.empty()) continue;
    add_sums(s, block[s].out, 2, [&](std::uint32_t i) { return streams(met[i], tokens[i], mine)[s]; });
    add_sums(s, block[s].down, 5, [&](std::uint32_t i) {
      return mlp_hidden(block[s], ranks.shard(i),
                        modulated(rows[i][s], width, kJointEps, table(i, s, 3), table(i, s, 4)), pool);
    });
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = concatenated(std::move(rows[i][0]), rows[i][1]);
}

void forward_single(const JointStream& block, const Rows& table, const SequenceRanks::Call& call,
                    const std::vector<JointTokens>& tokens, PerRank& x, SequenceRanks& ranks) {
  ThreadPool& pool = ranks.pool();
  const std::uint32_t width = block.q.shards[0].weight.k(), mine = call.heads * call.dim,
                      mlp = block.down.shards[0].weight.k() - mine;
  PerRank q(x.size()), k(x.size()), v(x.size()), hidden(x.size()), met, parts;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    const std::uint32_t shard = ranks.shard(i);
    const Rows in = modulated(x[i], width, kJointEps, table.data(), table.data() + width);
    q[i] = headed(block.q.shards[shard], block.norm_q, kJointEps, in, pool);
    k[i] = headed(block.k.shards[shard], block.norm_k, kJointEps, in, pool);
    v[i] = product(block.v.shards[shard], in, pool);
    turn_rows(tokens[i].turns, call.heads, q[i]);
    turn_rows(tokens[i].turns, call.heads, k[i]);
    hidden[i] = mlp_hidden(block, shard, in, pool);
  }
  ranks.attend(call, q, k, v, met);
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    Rows beside;  // of each token attention, then the MLP
    for (std::uint32_t t = 0; t < x[i].size() / width; ++t) {
      beside = concatenated(std::move(beside), rows_of(met[i], mine, {t, 1}));
      beside = concatenated(std::move(beside), rows_of(hidden[i], mlp, {t, 1}));
    }
    parts.push_back(product(block.down.shards[ranks.shard(i)], beside, pool));
  }
  ranks.reduce(parts, block.down.bias);
  for (std::size_t i = 0; i < x.size(); ++i)
    add_gated(x[i], parts[i], table.data() + std::size_t{2} * width, width);
}

}  // namespace tpsim::rank
