// Stable Diffusion 3.5, as Diffusers' SD3Transformer2DModel has it: blocks of joint attention with a stream
// each for text and image, the last of which lets go of the text. Where a token of the image lies is added to
// it, out of the middle of a table; nothing is rotated.
//
// Not computed, and refused: a second attention beside (3.5 medium), and queries and keys without norms (3).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/joint_streams.h"

namespace tpsim::rank {
namespace {

class StableDiffusion3 : public Denoiser {
 public:
  StableDiffusion3(const ConfigReader& config, const TensorSource& source, std::uint32_t tp_size)
      : tp_(tp_size),
        heads_(config.number("num_attention_heads")),
        dim_(config.number("attention_head_dim")),
        width_(heads_ * dim_),
        channels_(config.number_or("in_channels", 16)),
        text_(config.number_or("joint_attention_dim", 4096)),
        pooled_(config.number_or("pooled_projection_dim", 2048)),
        side_(config.number_or("pos_embed_max_size", 96)) {
    if (config.number_or("out_channels", channels_) != channels_ || config.number_or("patch_size", 2) != 2 ||
        config.number_or("caption_projection_dim", width_) != width_)
      throw_user_error(
          "{}: keys \"out_channels\", \"patch_size\" and \"caption_projection_dim\" must be in_channels, 2 "
          "and heads times their size: no other Stable Diffusion 3 is computed",
          config.where());
    if (config.text("qk_norm", "") != "rms_norm" ||
        (config.has("dual_attention_layers") && !config.json().at("dual_attention_layers").empty()))
      throw_user_error(
          "{}: keys \"qk_norm\" and \"dual_attention_layers\" must be rms_norm and empty: no other Stable "
          "Diffusion 3 is computed",
          config.where());
    const TowerReader reader(source, WeightType::kFp32, {""}, "context_embedder.weight");
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/true);
    };
    const auto embedder = [&](const std::string& name, std::uint32_t inputs) {
      return Embedder{.first = linear("time_text_embed." + name + ".linear_1", width_, inputs),
                      .second = linear("time_text_embed." + name + ".linear_2", width_, width_)};
    };
    patches_ = reader.whole("pos_embed.proj", width_, {channels_, 2, 2}, /*bias=*/true);
    places_ = reader.tensor("pos_embed.pos_embed", {1, std::uint64_t{side_} * side_, width_});
    context_ = linear("context_embedder", width_, text_);
    time_ = embedder("timestep_embedder", kJointTimeSize);
    pooled_text_ = embedder("text_embedder", pooled_);
    refuse_uncut(tp_, heads_, "num_attention_heads", config.where());
    const CutReader cut{reader, tp_};
    const std::uint32_t layers = config.number_or("num_layers", 18);
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::string at = "transformer_blocks." + std::to_string(i) + ".";
      const auto stream = [&](bool text) {
        const std::string kind = text ? "_context" : "";
        return read_joint_stream(cut, at + "attn.", text, at + "norm1" + kind + ".linear",
                                 at + "ff" + kind + ".net.0.proj", at + "ff" + kind + ".net.2", width_, dim_,
                                 /*last=*/text && i + 1 == layers);
      };
      blocks_.push_back({stream(true), stream(false)});
    }
    norm_out_ = linear("norm_out.linear", 2 * width_, width_);
    proj_out_ = linear("proj_out", 4 * channels_, width_);
  }

  std::uint32_t channels() const override { return channels_; }
  std::uint32_t text_size() const override { return text_; }
  std::uint32_t pooled_size() const override { return pooled_; }
  std::array<std::uint32_t, 3> patch() const override { return kJointPatch; }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float /*guidance*/,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    ThreadPool& pool = ranks.pool();
    const JointSequence sequence{shape, tokens_of(texts)};
    const attention::GridSize& grid = sequence.grid();
    if (grid[1] > side_ || grid[2] > side_)
      throw_user_error("--latent-size: its rows and columns must be at most twice pos_embed_max_size, {}",
                       side_);
    std::vector<Rows> conditions;
    for (const TextEmbeddings& text : texts) {
      Rows& condition = conditions.emplace_back(time_(sinusoids(timestep, kJointTimeSize), pool));
      const Rows pooled = pooled_text_(text.pooled, pool);
      add(condition.data(), pooled.data(), width_);
      activate(TowerActivation::kSilu, condition.data(), width_);
    }
    std::vector<JointTokens> tokens(ranks.local());
    PerRank x(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      tokens[i] = sequence.tokens(i, ranks);
      Rows image = product(patches_, sequence.patches(latents, tokens[i].image), pool);
      for (std::uint32_t t = 0; t < tokens[i].image.count; ++t) {
        const std::uint32_t token = tokens[i].image.first + t;
        const std::size_t row = (side_ - grid[1]) / 2 + token / grid[2],
                          column = (side_ - grid[2]) / 2 + token % grid[2];
        add(image.data() + std::size_t{t} * width_, places_.data() + (row * side_ + column) * width_, width_);
      }
      const TextEmbeddings& text = texts[ranks.prompt(i)];
      x[i] = concatenated(product(context_, rows_of(text.rows, text_, tokens[i].text), pool), image);
    }
    for (const auto& block : blocks_) {
      std::vector<JointTables> tables;
      for (const Rows& condition : conditions) {
        JointTables& of = tables.emplace_back(modulations(block, condition, pool));
        // Of text that is let go, scale and shift come the other way round.
        if (block[0].out.shards.empty())
          std::swap_ranges(of[0].begin(), of[0].begin() + width_, of[0].begin() + width_);
      }
      forward_joint(block, tables, sequence.call(heads_ / tp_, dim_), tokens, x, ranks);
    }
    return sequence.finish(norm_out_, proj_out_, conditions, x, ranks, /*channels_last=*/true);
  }

 private:
  const std::uint32_t tp_, heads_, dim_, width_, channels_, text_, pooled_, side_;
  TowerLinear patches_, context_, norm_out_, proj_out_;
  std::vector<float> places_;  // [side, side, width]
  Embedder time_, pooled_text_;
  std::vector<std::array<JointStream, 2>> blocks_;  // text, image
};

}  // namespace

extern const DenoiserFamily kStableDiffusion3Denoiser;
const DenoiserFamily kStableDiffusion3Denoiser = {.class_name = "SD3Transformer2DModel",
                                                  .load = make_denoiser<StableDiffusion3>};

}  // namespace tpsim::rank
