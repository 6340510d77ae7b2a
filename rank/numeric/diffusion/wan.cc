// Wan 2.1's text to video, as Diffusers' WanTransformer3DModel has it: blocks of self-attention with
// rotations by frame, row and column, cross attention to the text, and an MLP, modulated by the timestep.
//
// Not computed, and refused: image conditions (I2V) and a timestep for each token (TI2V).
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

using PerRank = SequenceRanks::PerRank;
using Rows = std::vector<float>;

struct WanAttention {
  CutLinear q, k, v, out;
  TowerNorm norm_q, norm_k;
};

struct WanBlock {
  WanAttention self, cross;
  TowerNorm norm2;  // empty weight: none
  CutLinear up, down;
  std::vector<float> table;  // [6, width]
};

class Wan : public Denoiser {
 public:
  Wan(const ConfigReader& config, const TensorSource& source, std::uint32_t tp_size)
      : tp_(tp_size),
        heads_(config.number("num_attention_heads")),
        dim_(config.number("attention_head_dim", 6)),
        width_(heads_ * dim_),
        in_(config.number("in_channels")),
        out_(config.number_or("out_channels", in_)),
        text_(config.number("text_dim")),
        freq_(config.number("freq_dim", 2)),
        ffn_(config.number("ffn_dim")),
        eps_(static_cast<float>(config.real("eps", 1e-6, 0, 1))) {
    for (const char* const key : {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"}) {
      if (config.has(key))
        throw_user_error(
            "{}: key \"{}\" is given; of images as conditions those behind the latents are computed, not "
            "those that an image encoder reads",
            config.where(), key);
    }
    if (dim_ % 2 != 0)
      throw_user_error("{}: key \"attention_head_dim\" is {}; it must be even", config.where(), dim_);
    const std::string qk_norm = config.text("qk_norm", "rms_norm_across_heads");
    if (qk_norm != "rms_norm_across_heads")
      throw_user_error("{}: key \"qk_norm\" is {}; rms_norm_across_heads is computed", config.where(),
                       qk_norm);
    if (out_ > in_)
      throw_user_error("{}: key \"out_channels\" is {}, more than in_channels, {}", config.where(), out_,
                       in_);
    read_patch(config);
    const TowerReader reader(source, WeightType::kFp32, {""}, "patch_embedding.weight");
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/true);
    };
    patches_ = reader.whole("patch_embedding", width_, {in_, patch_[0], patch_[1], patch_[2]}, true);
    const std::string condition = "condition_embedder.";
    time_ = {.first = linear(condition + "time_embedder.linear_1", width_, freq_),
             .second = linear(condition + "time_embedder.linear_2", width_, width_)};
    time_proj_ = linear(condition + "time_proj", 6 * width_, width_);
    text_embedder_ = {.first = linear(condition + "text_embedder.linear_1", width_, text_),
                      .second = linear(condition + "text_embedder.linear_2", width_, width_),
                      .activation = TowerActivation::kGeluTanh};
    refuse_uncut(tp_, heads_, "num_attention_heads", config.where());
    refuse_uncut(tp_, ffn_, "ffn_dim", config.where());
    const CutReader cut{reader, tp_};
    const auto attention = [&](const std::string& at) {
      return WanAttention{.q = cut.columns(at + "to_q", width_, width_),
                          .k = cut.columns(at + "to_k", width_, width_),
                          .v = cut.columns(at + "to_v", width_, width_),
                          .out = cut.rows(at + "to_out.0", width_, width_),
                          .norm_q = reader.norm(at + "norm_q", width_, eps_, /*rms=*/true),
                          .norm_k = reader.norm(at + "norm_k", width_, eps_, /*rms=*/true)};
    };
    const bool cross_norm = config.flag("cross_attn_norm", true);
    for (std::uint32_t i = 0; i < config.number("num_layers"); ++i) {
      const std::string at = "blocks." + std::to_string(i) + ".";
      blocks_.push_back({.self = attention(at + "attn1."),
                         .cross = attention(at + "attn2."),
                         .norm2 = cross_norm ? reader.norm(at + "norm2", width_, eps_) : TowerNorm{},
                         .up = cut.columns(at + "ffn.net.0.proj", ffn_, width_),
                         .down = cut.rows(at + "ffn.net.2", width_, ffn_),
                         .table = reader.tensor(at + "scale_shift_table", {1, 6, width_})});
    }
    const std::uint32_t patch_size = patch_[0] * patch_[1] * patch_[2];
    proj_out_ = linear("proj_out", out_ * patch_size, width_);
    table_ = reader.tensor("scale_shift_table", {1, 2, width_});
  }

  std::uint32_t channels() const override { return out_; }
  std::uint32_t input_channels() const override { return in_; }
  std::uint32_t text_size() const override { return text_; }
  std::array<std::uint32_t, 3> patch() const override { return patch_; }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float /*guidance*/,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    attention::GridSize grid{};
    for (std::size_t i = 0; i < 3; ++i) grid[i] = shape[i + 1] / patch_[i];
    const std::uint32_t count = grid[0] * grid[1] * grid[2];
    ThreadPool& pool = ranks.pool();

    // What conditions all blocks.
    const std::vector<float> time = time_(sinusoids(timestep, freq_), pool);
    std::vector<float> active = time;
    activate(TowerActivation::kSilu, active.data(), width_);
    const std::vector<float> projected = product(time_proj_, active, pool);

    PerRank x(ranks.local()), text(ranks.local());
    std::vector<std::vector<Rotation>> turns(ranks.local());
    // The first elements of a head turn by the frame, then come those of the row and of the column.
    const std::uint32_t side = 2 * (dim_ / 6);
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      const Share share = ranks.tokens(i, count);
      turns[i] = rotations(share, grid, {.sizes = {dim_ - 2 * side, side, side}});
      x[i] = product(patches_, patch_rows(shape, latents, grid, share), pool);
      text[i] = text_embedder_(texts[ranks.prompt(i)].rows, pool);
    }
    for (std::uint32_t layer = 0; layer < blocks_.size(); ++layer)
      forward_block(layer, projected, grid, turns, text, x, ranks);

    std::vector<float> table = table_;
    for (std::uint32_t part = 0; part < 2; ++part)
      add(table.data() + std::size_t{part} * width_, time.data(), width_);
    PerRank results(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      results[i] =
          product(proj_out_, modulated(x[i], width_, eps_, table.data(), table.data() + width_), pool);
    }
    std::vector<std::vector<float>> out;
    for (const std::vector<float>& rows : ranks.gather(results, {count, count}, proj_out_.weight.n()))
      out.push_back(from_patches(shape, grid, rows));
    return out;
  }

 private:
  void read_patch(const ConfigReader& config) {
    if (!config.has("patch_size")) return;
    const Json& json = config.json().at("patch_size");
    const bool three = json.is_array() && json.size() == 3;
    for (std::size_t i = 0; i < 3; ++i) {
      if (!three || !json[i].is_number_unsigned() || json[i] < 1U || json[i] > 64U)
        throw_user_error("{}: key \"patch_size\" must be three whole numbers from 1 to 64", config.where());
      patch_[i] = json[i].get<std::uint32_t>();
    }
  }

  // Rows [share.count, channels x patch] of the tokens of a share, as a convolution whose stride is its
  // kernel reads them.
  std::vector<float> patch_rows(const LatentShape& shape, std::span<const float> latents,
                                const attention::GridSize& grid, const Share& share) const {
    std::vector<float> out;
    for_patches({in_, shape[1], shape[2], shape[3]}, patch_, grid, share,
                [&](std::uint32_t, std::uint32_t, std::size_t at) { out.push_back(latents[at]); });
    return out;
  }
  // Outputs come with their channel last.
  std::vector<float> from_patches(const LatentShape& shape, const attention::GridSize& grid,
                                  const std::vector<float>& rows) const {
    std::vector<float> out(elements(shape));
    const std::uint32_t size = patch_[0] * patch_[1] * patch_[2];
    std::uint32_t i = 0;
    for_patches(shape, patch_, grid, {0, grid[0] * grid[1] * grid[2]},
                [&](std::uint32_t token, std::uint32_t channel, std::size_t at) {
                  out[at] = rows[(std::size_t{token} * size + i++ % size) * out_ + channel];
                });
    return out;
  }

  // Rows through a layer, by the root mean square over the heads of all shards.
  PerRank normed(const CutLinear& linear, const TowerNorm& norm, const PerRank& x,
                 SequenceRanks& ranks) const {
    const std::uint32_t mine = width_ / tp_;
    PerRank out, squares(x.size());
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      const Rows& rows = out.emplace_back(product(linear.shards[ranks.shard(i)], x[i], ranks.pool()));
      for (std::size_t at = 0; at < rows.size(); at += mine)
        squares[i].push_back(dot(rows.data() + at, rows.data() + at, mine));
    }
    ranks.reduce(squares, {});
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      const float* const weight = norm.weight.data() + std::size_t{ranks.shard(i)} * mine;
      for (std::size_t at = 0; at < out[i].size(); ++at)
        out[i][at] *=
            weight[at % mine] / std::sqrt(squares[i][at / mine] / static_cast<float>(width_) + norm.eps);
    }
    return out;
  }
  PerRank products(const CutLinear& linear, const PerRank& x, SequenceRanks& ranks) const {
    PerRank out;
    for (std::uint32_t i = 0; i < x.size(); ++i)
      out.push_back(product(linear.shards[ranks.shard(i)], x[i], ranks.pool()));
    return out;
  }
  // Products with shares of the inputs, added up.
  PerRank sums(const CutLinear& linear, const PerRank& x, SequenceRanks& ranks) const {
    PerRank out = products(linear, x, ranks);
    ranks.reduce(out, linear.bias);
    return out;
  }

  void forward_block(std::uint32_t layer, const std::vector<float>& time, const attention::GridSize& grid,
                     const std::vector<std::vector<Rotation>>& turns, const PerRank& text, PerRank& x,
                     SequenceRanks& ranks) const {
    const WanBlock& block = blocks_[layer];
    std::vector<float> table = block.table;  // shift, scale, gate of attention, then of the MLP
    add(table.data(), time.data(), table.size());
    const auto part = [&](std::size_t i) { return table.data() + i * width_; };
    const auto all_modulated = [&](std::size_t shift) {
      PerRank out;
      for (const Rows& rows : x) out.push_back(modulated(rows, width_, eps_, part(shift), part(shift + 1)));
      return out;
    };
    const auto add_all = [&](const PerRank& more, std::size_t gate) {
      for (std::size_t i = 0; i < x.size(); ++i) add_gated(x[i], more[i], part(gate), width_);
    };
    const PerRank in = all_modulated(0);
    PerRank q = normed(block.self.q, block.self.norm_q, in, ranks),
            k = normed(block.self.k, block.self.norm_k, in, ranks), met;
    const std::uint32_t heads = heads_ / tp_;
    for (std::size_t i = 0; i < x.size(); ++i) {
      turn_rows(turns[i], heads, q[i]);
      turn_rows(turns[i], heads, k[i]);
    }
    ranks.attend({.heads = heads, .dim = dim_, .grid = grid, .layer = layer}, q, k,
                 products(block.self.v, in, ranks), met);
    add_all(sums(block.self.out, met, ranks), 2);
    add_cross(block, text, x, ranks);
    PerRank hidden = products(block.up, all_modulated(3), ranks);
    for (Rows& rows : hidden) activate(TowerActivation::kGeluTanh, rows.data(), rows.size());
    add_all(sums(block.down, hidden, ranks), 5);
  }

  // Every rank has the whole text, and no other's tokens are asked: dense whatever the backend.
  void add_cross(const WanBlock& block, const PerRank& text, PerRank& x, SequenceRanks& ranks) const {
    PerRank in = x, met;
    for (std::size_t i = 0; i < x.size() && !block.norm2.weight.empty(); ++i)
      block.norm2.apply(x[i].data(), static_cast<std::uint32_t>(x[i].size() / width_), in[i].data(),
                        ranks.pool());
    const PerRank q = normed(block.cross.q, block.cross.norm_q, in, ranks),
                  k = normed(block.cross.k, block.cross.norm_k, text, ranks),
                  v = products(block.cross.v, text, ranks);
    for (std::size_t i = 0; i < x.size(); ++i)
      met.push_back(dense_heads(q[i], k[i], v[i], heads_ / tp_, dim_, ranks.pool()));
    const PerRank sum = sums(block.cross.out, met, ranks);
    for (std::size_t i = 0; i < x.size(); ++i) add(x[i].data(), sum[i].data(), x[i].size());
  }

  const std::uint32_t tp_, heads_, dim_, width_, in_, out_, text_, freq_, ffn_;
  const float eps_;
  std::array<std::uint32_t, 3> patch_ = {1, 2, 2};
  TowerLinear patches_, time_proj_, proj_out_;
  Embedder time_, text_embedder_;
  std::vector<WanBlock> blocks_;
  std::vector<float> table_;
};

}  // namespace

extern const DenoiserFamily kWanDenoiser;
const DenoiserFamily kWanDenoiser = {.class_name = "WanTransformer3DModel", .load = make_denoiser<Wan>};

}  // namespace tpsim::rank
