// Wan 2.1 and 2.2, as Diffusers' WanTransformer3DModel has it: blocks of self-attention with rotations by
// frame, row and column, cross attention to the text, and an MLP, modulated by the timestep. Of an image that
// is given as the first latents (TI2V-5B) the tokens are at timestep 0; to what an image encoder makes of it
// (I2V of 2.1) cross attention goes, too.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

constexpr float kImageEps = 1e-5F;  // of norms of an image, PyTorch's default

using PerRank = SequenceRanks::PerRank;
using Rows = std::vector<float>;

struct WanAttention {
  CutLinear q, k, v, out;
  TowerNorm norm_q, norm_k;
};

// What modulates rows of a video, those of the first frame where it is given, and the others.
struct WanTables {
  std::vector<float> given, made;
};

struct WanBlock {
  WanAttention self, cross, image;  // image: of keys and values alone
  TowerNorm norm2;                  // empty weight: none
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
        image_(config.number_or("image_dim", 0)),
        eps_(static_cast<float>(config.real("eps", 1e-6, 0, 1))) {
    if (config.has("pos_embed_seq_len") ||
        (image_ > 0 ? config.number_or("added_kv_proj_dim", 0) != width_ : config.has("added_kv_proj_dim")))
      throw_user_error(
          "{}: keys \"image_dim\", \"added_kv_proj_dim\" and \"pos_embed_seq_len\" must be given, {}, and "
          "not "
          "given, or none of them: no other image is computed",
          config.where(), width_);
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
    if (image_ > 0) {
      const std::string image = condition + "image_embedder.";
      image_in_ = reader.norm(image + "norm1", image_, kImageEps);
      image_embedder_ = {.first = linear(image + "ff.net.0.proj", image_, image_),
                         .second = linear(image + "ff.net.2", width_, image_),
                         .activation = TowerActivation::kGelu};
      image_out_ = reader.norm(image + "norm2", width_, kImageEps);
    }
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
      WanBlock& block = blocks_.emplace_back();
      block = {.self = attention(at + "attn1."),
               .cross = attention(at + "attn2."),
               .image = {},
               .norm2 = cross_norm ? reader.norm(at + "norm2", width_, eps_) : TowerNorm{},
               .up = cut.columns(at + "ffn.net.0.proj", ffn_, width_),
               .down = cut.rows(at + "ffn.net.2", width_, ffn_),
               .table = reader.tensor(at + "scale_shift_table", {1, 6, width_})};
      if (image_ == 0) continue;
      block.image.k = cut.columns(at + "attn2.add_k_proj", width_, width_);
      block.image.v = cut.columns(at + "attn2.add_v_proj", width_, width_);
      block.image.norm_k = reader.norm(at + "attn2.norm_added_k", width_, eps_, /*rms=*/true);
    }
    const std::uint32_t patch_size = patch_[0] * patch_[1] * patch_[2];
    proj_out_ = linear("proj_out", out_ * patch_size, width_);
    table_ = reader.tensor("scale_shift_table", {1, 2, width_});
  }

  std::uint32_t channels() const override { return out_; }
  std::uint32_t input_channels() const override { return in_; }
  std::uint32_t text_size() const override { return text_; }
  std::uint32_t image_size() const override { return image_; }
  std::array<std::uint32_t, 3> patch() const override { return patch_; }
  void give(const LatentShape& shape, std::span<const float> condition,
            std::vector<float>& latents) const override {
    if (condition.empty() || in_ != out_) return;
    const std::size_t plane = std::size_t{shape[2]} * shape[3];
    for (std::size_t channel = 0; channel < shape[0]; ++channel)
      std::copy_n(condition.begin() + static_cast<std::ptrdiff_t>(channel * plane), plane,
                  latents.begin() + static_cast<std::ptrdiff_t>(channel * shape[1] * plane));
  }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float /*guidance*/,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    attention::GridSize grid{};
    for (std::size_t i = 0; i < 3; ++i) grid[i] = shape[i + 1] / patch_[i];
    const std::uint32_t count = grid[0] * grid[1] * grid[2];
    ThreadPool& pool = ranks.pool();

    // What conditions all blocks.
    const auto conditions = [&](float at) {
      std::vector<float> time = time_(sinusoids(at, freq_), pool), active = time;
      activate(TowerActivation::kSilu, active.data(), width_);
      return std::pair(std::move(time), product(time_proj_, active, pool));
    };
    const auto [time, projected] = conditions(timestep);
    const bool given = in_ == out_ && latents.size() > elements(shape);
    const auto [given_time, given_projected] = given ? conditions(0) : std::pair(time, projected);

    PerRank x(ranks.local()), text(ranks.local()), image(ranks.local());
    std::vector<std::vector<Rotation>> turns(ranks.local());
    std::vector<std::size_t> firsts(ranks.local());  // rows of the first frame, where it is given
    // The first elements of a head turn by the frame, then come those of the row and of the column.
    const std::uint32_t side = 2 * (dim_ / 6);
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      const Share share = ranks.tokens(i, count);
      const std::uint32_t first = given ? grid[1] * grid[2] : 0;
      firsts[i] = std::min(share.first + share.count, std::max(share.first, first)) - share.first;
      turns[i] = rotations(share, grid, {.sizes = {dim_ - 2 * side, side, side}});
      x[i] = product(patches_, patch_rows(shape, latents, grid, share), pool);
      text[i] = text_embedder_(texts[ranks.prompt(i)].rows, pool);
      if (image_ == 0) continue;
      Rows rows = texts[ranks.prompt(i)].image;
      const auto tokens = static_cast<std::uint32_t>(rows.size() / image_);
      image_in_.apply(rows.data(), tokens, rows.data(), pool);
      image[i] = image_embedder_(rows, pool);
      image_out_.apply(image[i].data(), tokens, image[i].data(), pool);
    }
    for (std::uint32_t layer = 0; layer < blocks_.size(); ++layer)
      forward_block(layer, {given_projected, projected}, firsts, grid, turns, text, image, x, ranks);

    WanTables tables{table_, table_};
    for (std::size_t part = 0; part < 2; ++part) {
      add(tables.given.data() + part * width_, given_time.data(), width_);
      add(tables.made.data() + part * width_, time.data(), width_);
    }
    PerRank results(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      results[i] = product(proj_out_, modulated_rows(x[i], firsts[i], tables, 0), pool);
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

  // Normed, times 1 + scale, plus shift: parts `shift` and `shift` + 1 of the table of each row, of which the
  // first ones are given.
  Rows modulated_rows(const Rows& rows, std::size_t first, const WanTables& tables, std::size_t shift) const {
    const auto of = [&](const Rows& some, const std::vector<float>& table) {
      const float* const at = table.data() + shift * width_;
      return modulated(some, width_, eps_, at, at + width_);
    };
    if (first == 0) return of(rows, tables.made);
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(first * width_);
    Rows out = of({rows.begin(), middle}, tables.given);
    const Rows made = of({middle, rows.end()}, tables.made);
    out.insert(out.end(), made.begin(), made.end());
    return out;
  }

  void forward_block(std::uint32_t layer, const WanTables& time, const std::vector<std::size_t>& firsts,
                     const attention::GridSize& grid, const std::vector<std::vector<Rotation>>& turns,
                     const PerRank& text, const PerRank& image, PerRank& x, SequenceRanks& ranks) const {
    const WanBlock& block = blocks_[layer];
    WanTables tables = time;  // shift, scale, gate of attention, then of the MLP
    add(tables.given.data(), block.table.data(), block.table.size());
    add(tables.made.data(), block.table.data(), block.table.size());
    const auto all_modulated = [&](std::size_t shift) {
      PerRank out;
      for (std::size_t i = 0; i < x.size(); ++i)
        out.push_back(modulated_rows(x[i], firsts[i], tables, shift));
      return out;
    };
    const auto add_all = [&](const PerRank& more, std::size_t gate) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (std::size_t at = 0; at < x[i].size(); ++at) {
          const std::vector<float>& table = at / width_ < firsts[i] ? tables.given : tables.made;
          x[i][at] += more[i][at] * table[gate * width_ + at % width_];
        }
      }
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
    add_cross(block, text, image, x, ranks);
    PerRank hidden = products(block.up, all_modulated(3), ranks);
    for (Rows& rows : hidden) activate(TowerActivation::kGeluTanh, rows.data(), rows.size());
    add_all(sums(block.down, hidden, ranks), 5);
  }

  // Every rank has the whole text, and no other's tokens are asked: dense whatever the backend.
  void add_cross(const WanBlock& block, const PerRank& text, const PerRank& image, PerRank& x,
                 SequenceRanks& ranks) const {
    PerRank in = x, met;
    for (std::size_t i = 0; i < x.size() && !block.norm2.weight.empty(); ++i)
      block.norm2.apply(x[i].data(), static_cast<std::uint32_t>(x[i].size() / width_), in[i].data(),
                        ranks.pool());
    const PerRank q = normed(block.cross.q, block.cross.norm_q, in, ranks),
                  k = normed(block.cross.k, block.cross.norm_k, text, ranks),
                  v = products(block.cross.v, text, ranks);
    for (std::size_t i = 0; i < x.size(); ++i)
      met.push_back(dense_heads(q[i], k[i], v[i], heads_ / tp_, dim_, ranks.pool()));
    if (image_ > 0) {
      const PerRank seen = normed(block.image.k, block.image.norm_k, image, ranks),
                    shown = products(block.image.v, image, ranks);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const Rows more = dense_heads(q[i], seen[i], shown[i], heads_ / tp_, dim_, ranks.pool());
        add(met[i].data(), more.data(), more.size());
      }
    }
    const PerRank sum = sums(block.cross.out, met, ranks);
    for (std::size_t i = 0; i < x.size(); ++i) add(x[i].data(), sum[i].data(), x[i].size());
  }

  const std::uint32_t tp_, heads_, dim_, width_, in_, out_, text_, freq_, ffn_, image_;
  const float eps_;
  std::array<std::uint32_t, 3> patch_ = {1, 2, 2};
  TowerLinear patches_, time_proj_, proj_out_;
  Embedder time_, text_embedder_, image_embedder_;
  TowerNorm image_in_, image_out_;
  std::vector<WanBlock> blocks_;
  std::vector<float> table_;
};

}  // namespace

extern const DenoiserFamily kWanDenoiser;
const DenoiserFamily kWanDenoiser = {.class_name = "WanTransformer3DModel", .load = make_denoiser<Wan>};

}  // namespace tpsim::rank
