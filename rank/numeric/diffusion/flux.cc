// FLUX.1, as Diffusers' FluxTransformer2DModel has it: blocks of joint attention with a stream each for text
// and image, then blocks of one stream, whose attention and MLP lie beside each other. Text and image are one
// sequence here, which all ranks share; SGLang has the text on each, which computes the same.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"

namespace tpsim::rank {
namespace {

using PerRank = SequenceRanks::PerRank;
using Rows = std::vector<float>;

constexpr float kEps = 1e-6F;
constexpr std::uint32_t kTimeSize = 256, kMlpRatio = 4;
constexpr std::array<std::uint32_t, 3> kPatch = {1, 2, 2};

// Of one stream; a block of one stream has no `out`, `up` is its proj_mlp and `down` its proj_out.
struct Stream {
  TowerLinear modulation, q, k, v, out, up, down;
  Rows norm_q, norm_k;
};

Rows concatenated(Rows a, const Rows& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Flux : public Denoiser {
 public:
  Flux(const ConfigReader& config, const TensorSource& source)
      : heads_(config.number("num_attention_heads")),
        dim_(config.number("attention_head_dim", 2)),
        width_(heads_ * dim_),
        channels_(config.number("in_channels", 4) / 4),
        text_(config.number("joint_attention_dim")),
        pooled_(config.number("pooled_projection_dim")),
        embeds_guidance_(config.flag("guidance_embeds", false)) {
    if (config.number("in_channels") % 4 != 0 || config.number_or("patch_size", 1) != 1 ||
        config.number_or("out_channels", 4 * channels_) != 4 * channels_)
      throw_user_error(
          "{}: keys \"in_channels\", \"out_channels\" and \"patch_size\" must be a multiple of 4, the "
          "same and 1: no other FLUX is computed",
          config.where());
    read_axes(config);
    const TowerReader reader(source, WeightType::kFp32, {""}, "x_embedder.weight");
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/true);
    };
    const auto embedder = [&](const std::string& name, std::uint32_t inputs) {
      return Embedder{.first = linear("time_text_embed." + name + ".linear_1", width_, inputs),
                      .second = linear("time_text_embed." + name + ".linear_2", width_, width_)};
    };
    x_ = linear("x_embedder", width_, 4 * channels_);
    context_ = linear("context_embedder", width_, text_);
    time_ = embedder("timestep_embedder", kTimeSize);
    if (embeds_guidance_) guidance_ = embedder("guidance_embedder", kTimeSize);
    pooled_text_ = embedder("text_embedder", pooled_);
    for (std::uint32_t i = 0; i < config.number("num_layers", 0); ++i) {
      const std::string at = "transformer_blocks." + std::to_string(i) + ".";
      const auto stream = [&](const std::string& kind, const std::string& to, const std::string& proj,
                              const std::string& norm, const std::string& out) {
        const std::string attention = at + "attn.";
        return Stream{.modulation = linear(at + "norm1" + kind + ".linear", 6 * width_, width_),
                      .q = linear(attention + to + "q" + proj, width_, width_),
                      .k = linear(attention + to + "k" + proj, width_, width_),
                      .v = linear(attention + to + "v" + proj, width_, width_),
                      .out = linear(attention + out, width_, width_),
                      .up = linear(at + "ff" + kind + ".net.0.proj", kMlpRatio * width_, width_),
                      .down = linear(at + "ff" + kind + ".net.2", width_, kMlpRatio * width_),
                      .norm_q = reader.tensor(attention + norm + "q.weight", {dim_}),
                      .norm_k = reader.tensor(attention + norm + "k.weight", {dim_})};
      };
      double_.push_back({stream("_context", "add_", "_proj", "norm_added_", "to_add_out"),
                         stream("", "to_", "", "norm_", "to_out.0")});
    }
    for (std::uint32_t i = 0; i < config.number("num_single_layers", 0); ++i) {
      const std::string at = "single_transformer_blocks." + std::to_string(i) + ".";
      single_.push_back({.modulation = linear(at + "norm.linear", 3 * width_, width_),
                         .q = linear(at + "attn.to_q", width_, width_),
                         .k = linear(at + "attn.to_k", width_, width_),
                         .v = linear(at + "attn.to_v", width_, width_),
                         .out = {},
                         .up = linear(at + "proj_mlp", kMlpRatio * width_, width_),
                         .down = linear(at + "proj_out", width_, (1 + kMlpRatio) * width_),
                         .norm_q = reader.tensor(at + "attn.norm_q.weight", {dim_}),
                         .norm_k = reader.tensor(at + "attn.norm_k.weight", {dim_})});
    }
    norm_out_ = linear("norm_out.linear", 2 * width_, width_);
    proj_out_ = linear("proj_out", 4 * channels_, width_);
  }

  std::uint32_t channels() const override { return channels_; }
  std::uint32_t text_size() const override { return text_; }
  std::uint32_t pooled_size() const override { return pooled_; }
  bool guided() const override { return false; }
  std::uint32_t schedule_tokens(const LatentShape& shape) const override { return shape[2] * shape[3] / 4; }
  std::array<std::uint32_t, 3> patch() const override { return kPatch; }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float guidance,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    if (shape[1] != 1)
      throw_user_error("--latent-size: FLUX makes images, of 1 frame, and not of {}", shape[1]);
    const attention::GridSize grid = {1, shape[2] / 2, shape[3] / 2};
    const TextEmbeddings& text = texts.front();
    const std::uint32_t count = text.tokens + grid[1] * grid[2];
    ThreadPool& pool = ranks.pool();

    Rows condition = time_(sinusoids(timestep, kTimeSize), pool);
    const auto add_to_condition = [&](const Rows& more) { add(condition.data(), more.data(), width_); };
    if (embeds_guidance_) add_to_condition(guidance_(sinusoids(1000 * guidance, kTimeSize), pool));
    add_to_condition(pooled_text_(text.pooled, pool));
    activate(TowerActivation::kSilu, condition.data(), width_);

    std::vector<Part> parts(ranks.local());
    PerRank x(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      parts[i] = part_of(ranks.tokens(i, count), text.tokens, grid);
      const auto begin = text.rows.begin() + static_cast<std::ptrdiff_t>(parts[i].text.first) * text_;
      const auto size = static_cast<std::ptrdiff_t>(parts[i].text.count) * text_;
      Rows image;
      for_patches(shape, kPatch, grid, parts[i].image,
                  [&](std::uint32_t, std::uint32_t, std::size_t at) { image.push_back(latents[at]); });
      x[i] = concatenated(product(context_, Rows(begin, begin + size), pool), product(x_, image, pool));
    }
    const SequenceRanks::Call call = {.heads = heads_, .dim = dim_, .grid = grid, .text = text.tokens};
    for (const auto& block : double_) forward_double(block, condition, call, parts, x, ranks);
    for (const Stream& block : single_) forward_single(block, condition, call, parts, x, ranks);

    const Rows last = product(norm_out_, condition, pool);  // scale, then shift
    PerRank results(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i)
      results[i] = product(proj_out_, modulated(x[i], width_, kEps, last.data() + width_, last.data()), pool);
    const Rows all = ranks.gather(results, count, 4 * channels_).front();
    std::vector<float> out(elements(shape));
    std::size_t from = std::size_t{text.tokens} * 4 * channels_;
    for_patches(shape, kPatch, grid, {0, grid[1] * grid[2]},
                [&](std::uint32_t, std::uint32_t, std::size_t at) { out[at] = all[from++]; });
    return {out};
  }

 private:
  // What a rank has: tokens of the text, then of the image.
  struct Part {
    Share text, image;
    std::vector<Rotation> turns;
  };

  void read_axes(const ConfigReader& config) {
    if (config.has("axes_dims_rope")) {
      const Json& json = config.json().at("axes_dims_rope");
      const bool three = json.is_array() && json.size() == 3;
      for (std::size_t i = 0; i < 3; ++i) {
        if (!three || !json[i].is_number_unsigned() || json[i] > 1024U)
          throw_user_error("{}: key \"axes_dims_rope\" must be three whole numbers", config.where());
        axes_[i] = json[i].get<std::uint32_t>();
      }
    }
    const bool even = std::ranges::all_of(axes_, [](std::uint32_t size) { return size % 2 == 0; });
    if (!even || axes_[0] + axes_[1] + axes_[2] != dim_)
      throw_user_error("{}: key \"axes_dims_rope\" must be even numbers whose sum is attention_head_dim, {}",
                       config.where(), dim_);
  }

  Part part_of(const Share& share, std::uint32_t text, const attention::GridSize& grid) const {
    Part part;
    const std::uint32_t end = share.first + share.count;
    part.text.first = std::min(share.first, text);
    part.text.count = std::min(end, text) - part.text.first;
    part.image = {std::max(share.first, text) - text, share.count - part.text.count};
    part.turns.assign(part.text.count, rotation({}, axes_));
    const std::vector<Rotation> image = rotations(part.image, grid, axes_);
    part.turns.insert(part.turns.end(), image.begin(), image.end());
    return part;
  }

  // Text rows, then those of the image.
  std::array<Rows, 2> streams(const Rows& x, const Part& part) const {
    const auto text = x.begin() + static_cast<std::ptrdiff_t>(part.text.count) * width_;
    return {Rows(x.begin(), text), Rows(text, x.end())};
  }

  Rows headed(const TowerLinear& linear, const Rows& norm, const Rows& x, ThreadPool& pool) const {
    Rows out = product(linear, x, pool);
    for (std::size_t at = 0; at < out.size(); at += dim_)
      rms_norm(out.data() + at, dim_, norm.data(), 0, kEps, out.data() + at);
    return out;
  }

  void forward_double(const std::array<Stream, 2>& block, const Rows& condition,
                      const SequenceRanks::Call& call, const std::vector<Part>& parts, PerRank& x,
                      SequenceRanks& ranks) const {
    ThreadPool& pool = ranks.pool();
    // Shift, scale, gate of attention, then of the MLP.
    const std::array<Rows, 2> tables = {product(block[0].modulation, condition, pool),
                                        product(block[1].modulation, condition, pool)};
    const auto table = [&](std::size_t s, std::size_t i) { return tables[s].data() + i * width_; };
    PerRank q(x.size()), k(x.size()), v(x.size()), met;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::array<Rows, 2> rows = streams(x[i], parts[i]);
      for (std::size_t s = 0; s < 2; ++s) {
        const Rows in = modulated(rows[s], width_, kEps, table(s, 0), table(s, 1));
        q[i] = concatenated(std::move(q[i]), headed(block[s].q, block[s].norm_q, in, pool));
        k[i] = concatenated(std::move(k[i]), headed(block[s].k, block[s].norm_k, in, pool));
        v[i] = concatenated(std::move(v[i]), product(block[s].v, in, pool));
      }
      turn_rows(parts[i].turns, heads_, q[i]);
      turn_rows(parts[i].turns, heads_, k[i]);
    }
    ranks.attend(call, q, k, v, met);
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::array<Rows, 2> rows = streams(x[i], parts[i]), attended = streams(met[i], parts[i]);
      for (std::size_t s = 0; s < 2; ++s) {
        add_gated(rows[s], product(block[s].out, attended[s], pool), table(s, 2), width_);
        Rows hidden = product(block[s].up, modulated(rows[s], width_, kEps, table(s, 3), table(s, 4)), pool);
        activate(TowerActivation::kGeluTanh, hidden.data(), hidden.size());
        add_gated(rows[s], product(block[s].down, hidden, pool), table(s, 5), width_);
      }
      x[i] = concatenated(std::move(rows[0]), rows[1]);
    }
  }

  void forward_single(const Stream& block, const Rows& condition, const SequenceRanks::Call& call,
                      const std::vector<Part>& parts, PerRank& x, SequenceRanks& ranks) const {
    ThreadPool& pool = ranks.pool();
    const Rows table = product(block.modulation, condition, pool);  // shift, scale, gate
    PerRank q(x.size()), k(x.size()), v(x.size()), hidden(x.size()), met;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Rows in = modulated(x[i], width_, kEps, table.data(), table.data() + width_);
      q[i] = headed(block.q, block.norm_q, in, pool);
      k[i] = headed(block.k, block.norm_k, in, pool);
      v[i] = product(block.v, in, pool);
      turn_rows(parts[i].turns, heads_, q[i]);
      turn_rows(parts[i].turns, heads_, k[i]);
      hidden[i] = product(block.up, in, pool);
      activate(TowerActivation::kGeluTanh, hidden[i].data(), hidden[i].size());
    }
    ranks.attend(call, q, k, v, met);
    for (std::size_t i = 0; i < x.size(); ++i) {
      Rows beside;  // of each token attention, then the MLP
      for (std::size_t t = 0; t * width_ < x[i].size(); ++t) {
        const auto attended = met[i].begin() + static_cast<std::ptrdiff_t>(t * width_);
        const auto mlp = hidden[i].begin() + static_cast<std::ptrdiff_t>(t * kMlpRatio * width_);
        beside.insert(beside.end(), attended, attended + width_);
        beside.insert(beside.end(), mlp, mlp + static_cast<std::ptrdiff_t>(kMlpRatio) * width_);
      }
      add_gated(x[i], product(block.down, beside, pool), table.data() + std::size_t{2} * width_, width_);
    }
  }

  const std::uint32_t heads_, dim_, width_, channels_, text_, pooled_;
  const bool embeds_guidance_;
  std::array<std::uint32_t, 3> axes_ = {16, 56, 56};
  TowerLinear x_, context_, norm_out_, proj_out_;
  Embedder time_, guidance_, pooled_text_;
  std::vector<std::array<Stream, 2>> double_;  // text, image
  std::vector<Stream> single_;
};

}  // namespace

extern const DenoiserFamily kFluxDenoiser;
const DenoiserFamily kFluxDenoiser = {.class_name = "FluxTransformer2DModel", .load = make_denoiser<Flux>};

}  // namespace tpsim::rank
