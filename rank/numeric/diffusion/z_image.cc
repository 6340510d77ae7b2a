// Z-Image, as Diffusers' ZImageTransformer2DModel has it: one stream of text and image, each refined by
// blocks of its own before; both are padded to a multiple of 32 by a learned token, which everybody sees.
// (SGLang 0.5.23 pads each rank's share of the image, ZImagePipelineConfig._build_zimage_sp_plan: there the
// split adds keys. Here is what one GPU makes, by every split.)
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/ceil_div.h"
#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/joint_streams.h"
#include "rank/numeric/diffusion/z_image_block.h"

namespace tpsim::rank {
namespace {

// transformer_z_image.py: TimestepEmbedder, ADALN_EMBED_DIM, SEQ_MULTI_OF.
constexpr std::uint32_t kTimeSize = 256, kTimeHidden = 1024, kMostCondition = 256, kMultiple = 32;

using Turns = std::vector<Rotation>;

std::uint32_t padding(std::uint32_t tokens) { return ceil_div(tokens, kMultiple) * kMultiple - tokens; }

// Each row, a x b, becomes b x a: rows of patches have their channel last here.
Rows transposed(const Rows& rows, std::uint32_t a, std::uint32_t b) {
  Rows out(rows.size());
  for (std::size_t at = 0; at < rows.size(); at += std::size_t{a} * b) {
    for (std::uint32_t i = 0; i < a; ++i) {
      for (std::uint32_t j = 0; j < b; ++j) out[at + j * a + i] = rows[at + i * b + j];
    }
  }
  return out;
}

class ZImage : public Denoiser {
 public:
  ZImage(const ConfigReader& config, const TensorSource& source, std::uint32_t tp_size)
      : tp_(tp_size),
        heads_(config.number_or("n_heads", 30)),
        width_(config.number_or("dim", 3840)),
        dim_(width_ / heads_),
        mlp_(static_cast<std::uint32_t>(width_ / 3.0 * 8)),  // as Python rounds it
        channels_(config.number_or("in_channels", 16)),
        text_(config.number_or("cap_feat_dim", 2560)),
        condition_(std::min(width_, kMostCondition)),
        eps_(static_cast<float>(config.real("norm_eps", 1e-5, 0, 1))),
        time_scale_(static_cast<float>(config.real("t_scale", 1000, 0, 1e6))),
        axes_(read_rotary_axes(config, "axes_dims",
                               {.sizes = {32, 48, 48}, .theta = config.real("rope_theta", 256, 1, 1e9)},
                               dim_)) {
    refuse_others(config);
    refuse_uncut(tp_, heads_, "n_heads", config.where());
    refuse_uncut(tp_, mlp_, "the MLP's width, 8 thirds of dim,", config.where());
    const TowerReader reader(source, WeightType::kFp32, {""}, "x_pad_token");
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/true);
    };
    image_in_ = linear("all_x_embedder.2-1", width_, 4 * channels_);
    text_norm_ = reader.norm("cap_embedder.0", text_, eps_, /*rms=*/true);
    text_in_ = linear("cap_embedder.1", width_, text_);
    time_ = {.first = linear("t_embedder.mlp.0", kTimeHidden, kTimeSize),
             .second = linear("t_embedder.mlp.2", condition_, kTimeHidden)};
    image_padding_ = reader.tensor("x_pad_token", {1, width_});
    text_padding_ = reader.tensor("cap_pad_token", {1, width_});
    const CutReader cut{reader, tp_, /*bias=*/false};
    const ZImageSizes sizes{.width = width_, .dim = dim_, .mlp = mlp_, .condition = condition_, .eps = eps_};
    const auto read = [&](const std::string& name, const char* key, std::uint32_t otherwise, bool modulated) {
      std::vector<ZImageBlock> out;
      for (std::uint32_t i = 0; i < config.number_or(key, otherwise, 0); ++i)
        out.push_back(read_z_image_block(cut, name + "." + std::to_string(i) + ".", sizes, modulated));
      return out;
    };
    image_refiner_ = read("noise_refiner", "n_refiner_layers", 2, true);
    text_refiner_ = read("context_refiner", "n_refiner_layers", 2, false);
    blocks_ = read("layers", "n_layers", 30, true);
    last_scale_ = linear("all_final_layer.2-1.adaLN_modulation.1", width_, condition_);
    last_ = linear("all_final_layer.2-1.linear", 4 * channels_, width_);
  }

  std::uint32_t channels() const override { return channels_; }
  std::uint32_t text_size() const override { return text_; }
  std::uint32_t schedule_tokens(const LatentShape& shape) const override { return shape[2] * shape[3] / 4; }
  std::array<std::uint32_t, 3> patch() const override { return kJointPatch; }

  // pipeline_z_image.py, and SGLang's ZImageCFGPolicy: guidance counts from the prompt's own prediction.
  bool guided(float guidance) const override { return guidance > 0; }
  void guide(const LatentShape&, float guidance, std::span<const float> other,
             std::vector<float>& prompt) const override {
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] += guidance * (prompt[i] - other[i]);
  }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float /*guidance*/,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    ThreadPool& pool = ranks.pool();
    Rows condition = time_(sinusoids((1000 - timestep) / 1000 * time_scale_, kTimeSize), pool);
    // The image's padding lies before it, where tokens in front of the grid are.
    SequenceRanks::OfPrompts text = tokens_of(texts);
    for (std::uint32_t& tokens : text) tokens += padding(tokens);
    const attention::GridSize grid = JointSequence(shape, {}).grid();
    const std::uint32_t pads = padding(grid[1] * grid[2]);
    const JointSequence image(shape, {pads, pads}), whole(shape, {text[0] + pads, text[1] + pads});

    std::array<Turns, 2> text_turns, image_turns;
    for (std::size_t prompt = 0; prompt < text.size(); ++prompt) {
      for (std::uint32_t t = 0; t < text[prompt]; ++t)
        text_turns[prompt].push_back(rotation({static_cast<std::int32_t>(t) + 1, 0, 0}, axes_));
      image_turns[prompt] = concatenated(Turns(pads, rotation({}, axes_)),
                                         rotations({0, grid[1] * grid[2]}, grid, axes_,
                                                   {static_cast<std::int32_t>(text[prompt]) + 1, 0, 0}));
    }
    const std::vector<Rows> images =
        ranks.gather(refined_image(latents, condition, image, image_turns, ranks),
                     {image.count(0), image.count(1)}, width_);
    const PerRank refined = refined_text(texts, text_turns, ranks);
    PerRank x(ranks.local());
    std::vector<Turns> own(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      const std::uint32_t prompt = ranks.prompt(i);
      const Share share = ranks.tokens(i, whole.count(prompt));
      own[i] = turns_of(concatenated(text_turns[prompt], image_turns[prompt]), share);
      x[i] = rows_of(concatenated(refined[i], images[prompt]), width_, share);
    }
    for (const ZImageBlock& block : blocks_)
      block.forward(condition, own, x, ranks, shared_attention(whole, ranks));

    activate(TowerActivation::kSilu, condition.data(), condition_);
    const Rows scale = product(last_scale_, condition, pool), shift(width_);
    PerRank rows;
    for (const Rows& each : x) {
      Rows normed = modulated(each, width_, kJointEps, shift.data(), scale.data());
      rows.push_back(transposed(product(last_, normed, pool), 4, channels_));
    }
    std::vector<std::vector<float>> out = whole.unpatched(rows, ranks);
    for (std::vector<float>& prediction : out) {  // the pipeline takes what is opposite
      for (float& value : prediction) value = -value;
    }
    return out;
  }

 private:
  void refuse_others(const ConfigReader& config) const {
    if (width_ % heads_ != 0 || config.number_or("n_kv_heads", heads_) != heads_)
      throw_user_error("{}: keys \"dim\" and \"n_kv_heads\" must be a multiple of n_heads, {}, and the same",
                       config.where(), heads_);
    if (config.has("siglip_feat_dim"))
      throw_user_error("{}: key \"siglip_feat_dim\" is given; conditions of images are not computed",
                       config.where());
    if (!config.flag("qk_norm", true))
      throw_user_error("{}: key \"qk_norm\" is false, which is not computed; true is", config.where());
    for (const auto& [key, patch] : {std::pair("all_patch_size", 2), std::pair("all_f_patch_size", 1)}) {
      if (config.has(key) && config.json().at(key) != Json::array({patch}))
        throw_user_error("{}: key \"{}\" must be [{}]: no other is computed", config.where(), key, patch);
    }
  }

  static Turns turns_of(const Turns& turns, const Share& share) {
    const auto first = turns.begin() + static_cast<std::ptrdiff_t>(share.first);
    return {first, first + static_cast<std::ptrdiff_t>(share.count)};
  }

  // Over a sequence that the ranks share.
  ZImageBlock::Attend shared_attention(const JointSequence& sequence, SequenceRanks& ranks) const {
    return [call = sequence.call(heads_ / tp_, dim_), &ranks](const PerRank& q, const PerRank& k,
                                                              const PerRank& v, PerRank& out) {
      ranks.attend(call, q, k, v, out);
    };
  }

  // Of each rank its tokens of the image, padding first.
  PerRank refined_image(std::span<const float> latents, const Rows& condition, const JointSequence& image,
                        const std::array<Turns, 2>& all, SequenceRanks& ranks) const {
    PerRank x(ranks.local());
    std::vector<Turns> turns(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      turns[i] = turns_of(all[ranks.prompt(i)], ranks.tokens(i, image.count(ranks.prompt(i))));
      const JointTokens tokens = image.tokens(i, ranks);
      for (std::uint32_t t = 0; t < tokens.text.count; ++t)
        x[i] = concatenated(std::move(x[i]), image_padding_);
      const Rows patches = transposed(image.patches(latents, tokens.image), channels_, 4);
      x[i] = concatenated(std::move(x[i]), product(image_in_, patches, ranks.pool()));
    }
    for (const ZImageBlock& block : image_refiner_)
      block.forward(condition, turns, x, ranks, shared_attention(image, ranks));
    return x;
  }

  // Every rank has the whole text, and nobody else's tokens are asked: dense whatever the backend.
  PerRank refined_text(std::span<const TextEmbeddings> texts, const std::array<Turns, 2>& all,
                       SequenceRanks& ranks) const {
    PerRank x;
    std::vector<Turns> turns;
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      const TextEmbeddings& text = texts[ranks.prompt(i)];
      turns.push_back(all[ranks.prompt(i)]);
      Rows normed = text.rows;
      text_norm_.apply(normed.data(), text.tokens, normed.data(), ranks.pool());
      x.push_back(product(text_in_, normed, ranks.pool()));
      for (std::uint32_t t = text.tokens; t < turns[i].size(); ++t)
        x[i] = concatenated(std::move(x[i]), text_padding_);
    }
    const auto dense = [&](const PerRank& q, const PerRank& k, const PerRank& v, PerRank& out) {
      for (std::size_t i = 0; i < q.size(); ++i)
        out.push_back(dense_heads(q[i], k[i], v[i], heads_ / tp_, dim_, ranks.pool()));
    };
    for (const ZImageBlock& block : text_refiner_) block.forward({}, turns, x, ranks, dense);
    return x;
  }

  const std::uint32_t tp_, heads_, width_, dim_, mlp_, channels_, text_, condition_;
  const float eps_, time_scale_;
  const RotaryAxes axes_;
  TowerLinear image_in_, text_in_, last_scale_, last_;
  TowerNorm text_norm_;
  Embedder time_;
  Rows image_padding_, text_padding_;
  std::vector<ZImageBlock> image_refiner_, text_refiner_, blocks_;
};

}  // namespace

extern const DenoiserFamily kZImageDenoiser;
const DenoiserFamily kZImageDenoiser = {.class_name = "ZImageTransformer2DModel",
                                        .load = make_denoiser<ZImage>};

}  // namespace tpsim::rank
