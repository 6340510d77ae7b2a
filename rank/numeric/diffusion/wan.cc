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

struct WanAttention {
  TowerLinear q, k, v, out;
  TowerNorm norm_q, norm_k;
};

struct WanBlock {
  WanAttention self, cross;
  TowerNorm norm2;  // empty weight: none
  TowerLinear up, down;
  std::vector<float> table;  // [6, width]
};

class Wan : public Denoiser {
 public:
  Wan(const ConfigReader& config, const TensorSource& source)
      : heads_(config.number("num_attention_heads")),
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
            "{}: key \"{}\" is given; Wan with images as conditions is not computed, text to video is",
            config.where(), key);
    }
    if (dim_ % 2 != 0)
      throw_user_error("{}: key \"attention_head_dim\" is {}; it must be even", config.where(), dim_);
    const std::string qk_norm = config.text("qk_norm", "rms_norm_across_heads");
    if (qk_norm != "rms_norm_across_heads")
      throw_user_error("{}: key \"qk_norm\" is {}; rms_norm_across_heads is computed", config.where(),
                       qk_norm);
    if (out_ != in_)
      throw_user_error(
          "{}: key \"out_channels\" is {} and in_channels {}; latents alone are denoised, and both "
          "must be equal",
          config.where(), out_, in_);
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
    const auto attention = [&](const std::string& at) {
      return WanAttention{.q = linear(at + "to_q", width_, width_),
                          .k = linear(at + "to_k", width_, width_),
                          .v = linear(at + "to_v", width_, width_),
                          .out = linear(at + "to_out.0", width_, width_),
                          .norm_q = reader.norm(at + "norm_q", width_, eps_, /*rms=*/true),
                          .norm_k = reader.norm(at + "norm_k", width_, eps_, /*rms=*/true)};
    };
    const bool cross_norm = config.flag("cross_attn_norm", true);
    for (std::uint32_t i = 0; i < config.number("num_layers"); ++i) {
      const std::string at = "blocks." + std::to_string(i) + ".";
      blocks_.push_back({.self = attention(at + "attn1."),
                         .cross = attention(at + "attn2."),
                         .norm2 = cross_norm ? reader.norm(at + "norm2", width_, eps_) : TowerNorm{},
                         .up = linear(at + "ffn.net.0.proj", ffn_, width_),
                         .down = linear(at + "ffn.net.2", width_, ffn_),
                         .table = reader.tensor(at + "scale_shift_table", {1, 6, width_})});
    }
    const std::uint32_t patch_size = patch_[0] * patch_[1] * patch_[2];
    proj_out_ = linear("proj_out", out_ * patch_size, width_);
    table_ = reader.tensor("scale_shift_table", {1, 2, width_});
  }

  std::uint32_t channels() const override { return in_; }
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
    for_patches(shape, patch_, grid, share,
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
                  out[at] = rows[(std::size_t{token} * size + i++ % size) * in_ + channel];
                });
    return out;
  }

  static std::vector<float> normed(const TowerLinear& linear, const TowerNorm& norm,
                                   const std::vector<float>& x, ThreadPool& pool) {
    std::vector<float> out = product(linear, x, pool);
    norm.apply(out.data(), static_cast<std::uint32_t>(out.size() / norm.weight.size()), out.data(), pool);
    return out;
  }

  void forward_block(std::uint32_t layer, const std::vector<float>& time, const attention::GridSize& grid,
                     const std::vector<std::vector<Rotation>>& turns, const PerRank& text, PerRank& x,
                     SequenceRanks& ranks) const {
    const WanBlock& block = blocks_[layer];
    ThreadPool& pool = ranks.pool();
    std::vector<float> table = block.table;  // shift, scale, gate of attention, then of the MLP
    add(table.data(), time.data(), table.size());
    const auto part = [&](std::size_t i) { return table.data() + i * width_; };
    PerRank q(x.size()), k(x.size()), v(x.size()), met;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::vector<float> in = modulated(x[i], width_, eps_, part(0), part(1));
      q[i] = normed(block.self.q, block.self.norm_q, in, pool);
      k[i] = normed(block.self.k, block.self.norm_k, in, pool);
      v[i] = product(block.self.v, in, pool);
      turn_rows(turns[i], heads_, q[i]);
      turn_rows(turns[i], heads_, k[i]);
    }
    ranks.attend({.heads = heads_, .dim = dim_, .grid = grid, .layer = layer}, q, k, v, met);
    for (std::size_t i = 0; i < x.size(); ++i) {
      add_gated(x[i], product(block.self.out, met[i], pool), part(2), width_);
      add_cross(block, text[i], x[i], pool);
      std::vector<float> hidden = product(block.up, modulated(x[i], width_, eps_, part(3), part(4)), pool);
      activate(TowerActivation::kGeluTanh, hidden.data(), hidden.size());
      add_gated(x[i], product(block.down, hidden, pool), part(5), width_);
    }
  }

  // Every rank has the whole text, and no other's tokens are asked: dense whatever the backend.
  void add_cross(const WanBlock& block, const std::vector<float>& text, std::vector<float>& x,
                 ThreadPool& pool) const {
    const auto rows = static_cast<std::uint32_t>(x.size() / width_);
    std::vector<float> in = x;
    if (!block.norm2.weight.empty()) block.norm2.apply(x.data(), rows, in.data(), pool);
    const std::vector<float> q = normed(block.cross.q, block.cross.norm_q, in, pool),
                             k = normed(block.cross.k, block.cross.norm_k, text, pool),
                             v = product(block.cross.v, text, pool);
    const std::vector<float> sum = product(block.cross.out, dense_heads(q, k, v, heads_, dim_, pool), pool);
    add(x.data(), sum.data(), x.size());
  }

  const std::uint32_t heads_, dim_, width_, in_, out_, text_, freq_, ffn_;
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
