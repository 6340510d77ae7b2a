// FLUX.1, as Diffusers' FluxTransformer2DModel has it: blocks of joint attention with a stream each for text
// and image, then blocks of one stream, whose attention and MLP lie beside each other.
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

class Flux : public Denoiser {
 public:
  Flux(const ConfigReader& config, const TensorSource& source, std::uint32_t tp_size)
      : tp_(tp_size),
        heads_(config.number("num_attention_heads")),
        dim_(config.number("attention_head_dim", 2)),
        width_(heads_ * dim_),
        channels_(config.number("in_channels", 4) / 4),
        text_(config.number("joint_attention_dim")),
        pooled_(config.number("pooled_projection_dim")),
        embeds_guidance_(config.flag("guidance_embeds", false)),
        axes_(read_rotary_axes(config, "axes_dims_rope", {.sizes = {16, 56, 56}}, dim_)) {
    if (config.number("in_channels") % 4 != 0 || config.number_or("patch_size", 1) != 1 ||
        config.number_or("out_channels", 4 * channels_) != 4 * channels_)
      throw_user_error(
          "{}: keys \"in_channels\", \"out_channels\" and \"patch_size\" must be a multiple of 4, the "
          "same and 1: no other FLUX is computed",
          config.where());
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
    time_ = embedder("timestep_embedder", kJointTimeSize);
    if (embeds_guidance_) guidance_ = embedder("guidance_embedder", kJointTimeSize);
    pooled_text_ = embedder("text_embedder", pooled_);
    refuse_uncut(tp_, heads_, "num_attention_heads", config.where());
    const CutReader cut{reader, tp_};
    const std::uint32_t mlp = kJointMlpRatio * width_;
    for (std::uint32_t i = 0; i < config.number("num_layers", 0); ++i) {
      const std::string at = "transformer_blocks." + std::to_string(i) + ".";
      const auto stream = [&](bool text) {
        const std::string kind = text ? "_context" : "";
        return read_joint_stream(cut, at + "attn.", text, at + "norm1" + kind + ".linear",
                                 at + "ff" + kind + ".net.0.proj", at + "ff" + kind + ".net.2", width_, dim_);
      };
      double_.push_back({stream(true), stream(false)});
    }
    for (std::uint32_t i = 0; i < config.number("num_single_layers", 0); ++i) {
      const std::string at = "single_transformer_blocks." + std::to_string(i) + ".";
      single_.push_back(
          {.modulation = linear(at + "norm.linear", 3 * width_, width_),
           .q = cut.columns(at + "attn.to_q", width_, width_),
           .k = cut.columns(at + "attn.to_k", width_, width_),
           .v = cut.columns(at + "attn.to_v", width_, width_),
           .out = {},
           .up = cut.columns(at + "proj_mlp", mlp, width_),
           .down = cut.rows(at + "proj_out", width_, width_ + mlp, {{0, width_}, {width_, mlp}}),
           .norm_q = reader.tensor(at + "attn.norm_q.weight", {dim_}),
           .norm_k = reader.tensor(at + "attn.norm_k.weight", {dim_}),
           .gated = false});
    }
    norm_out_ = linear("norm_out.linear", 2 * width_, width_);
    proj_out_ = linear("proj_out", 4 * channels_, width_);
  }

  std::uint32_t channels() const override { return channels_; }
  std::uint32_t text_size() const override { return text_; }
  std::uint32_t pooled_size() const override { return pooled_; }
  bool guided(float /*guidance*/) const override { return false; }
  std::uint32_t schedule_tokens(const LatentShape& shape) const override { return shape[2] * shape[3] / 4; }
  std::array<std::uint32_t, 3> patch() const override { return kJointPatch; }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float guidance,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    const TextEmbeddings& text = texts.front();
    ThreadPool& pool = ranks.pool();
    Rows condition = time_(sinusoids(timestep, kJointTimeSize), pool);
    const auto add_to_condition = [&](const Rows& more) { add(condition.data(), more.data(), width_); };
    if (embeds_guidance_) add_to_condition(guidance_(sinusoids(1000 * guidance, kJointTimeSize), pool));
    add_to_condition(pooled_text_(text.pooled, pool));
    activate(TowerActivation::kSilu, condition.data(), width_);

    const JointSequence sequence{shape, tokens_of(texts)};
    std::vector<JointTokens> tokens(ranks.local());
    PerRank x(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      tokens[i] = sequence.tokens(i, ranks);
      tokens[i].turns = concatenated(std::vector(tokens[i].text.count, rotation({}, axes_)),
                                     rotations(tokens[i].image, sequence.grid(), axes_));
      x[i] = concatenated(product(context_, rows_of(text.rows, text_, tokens[i].text), pool),
                          product(x_, sequence.patches(latents, tokens[i].image), pool));
    }
    const SequenceRanks::Call call = sequence.call(heads_ / tp_, dim_);
    for (const auto& block : double_) {
      const JointTables tables = modulations(block, condition, pool);
      forward_joint(block, {&tables, 1}, call, tokens, x, ranks);
    }
    for (const JointStream& block : single_)
      forward_single(block, product(block.modulation, condition, pool), call, tokens, x, ranks);
    return sequence.finish(norm_out_, proj_out_, {&condition, 1}, x, ranks);
  }

 private:
  const std::uint32_t tp_, heads_, dim_, width_, channels_, text_, pooled_;
  const bool embeds_guidance_;
  const RotaryAxes axes_;
  TowerLinear x_, context_, norm_out_, proj_out_;
  Embedder time_, guidance_, pooled_text_;
  std::vector<std::array<JointStream, 2>> double_;  // text, image
  std::vector<JointStream> single_;
};

}  // namespace

extern const DenoiserFamily kFluxDenoiser;
const DenoiserFamily kFluxDenoiser = {.class_name = "FluxTransformer2DModel", .load = make_denoiser<Flux>};

}  // namespace tpsim::rank
