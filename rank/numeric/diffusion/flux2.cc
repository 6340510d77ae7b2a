// FLUX.2, as Diffusers' Flux2Transformer2DModel has it: FLUX.1's blocks with gated MLPs and without biases,
// whose modulations are the same in all; positions have a fourth axis, along which the text goes.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/joint_streams.h"

namespace tpsim::rank {
namespace {

class Flux2 : public Denoiser {
 public:
  Flux2(const ConfigReader& config, const TensorSource& source, std::uint32_t tp_size)
      : tp_(tp_size),
        heads_(config.number("num_attention_heads")),
        dim_(config.number("attention_head_dim", 2)),
        width_(heads_ * dim_),
        channels_(config.number("in_channels", 4) / 4),
        text_(config.number("joint_attention_dim")),
        embeds_guidance_(config.flag("guidance_embeds", true)),
        axes_(read_rotary_axes(config, "axes_dims_rope",
                               {.sizes = {32, 32, 32, 32}, .theta = config.real("rope_theta", 2000, 1, 1e9)},
                               dim_, 4)) {
    const double eps = config.real("eps", 1e-6, 0, 1);
    if (config.number("in_channels") % 4 != 0 || config.number_or("patch_size", 1) != 1 ||
        config.number_or("out_channels", 4 * channels_) != 4 * channels_ ||
        static_cast<float>(eps) != kJointEps)
      throw_user_error(
          "{}: keys \"in_channels\", \"out_channels\", \"patch_size\" and \"eps\" must be a multiple of 4, "
          "the same, 1 and 1e-6: no other FLUX.2 is computed",
          config.where());
    const auto mlp = static_cast<std::uint32_t>(width_ * config.real("mlp_ratio", 3, 0.01, 64));
    const std::uint32_t time = config.number_or("timestep_guidance_channels", 256, 2);
    const TowerReader reader(source, WeightType::kFp32, {""}, "x_embedder.weight");
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/false);
    };
    const auto embedder = [&](const std::string& name) {
      return Embedder{.first = linear("time_guidance_embed." + name + ".linear_1", width_, time),
                      .second = linear("time_guidance_embed." + name + ".linear_2", width_, width_)};
    };
    x_ = linear("x_embedder", width_, 4 * channels_);
    context_ = linear("context_embedder", width_, text_);
    time_ = embedder("timestep_embedder");
    if (embeds_guidance_) guidance_ = embedder("guidance_embedder");
    const auto modulation = [&](const std::string& name, std::uint32_t count) {
      return linear(name + ".linear", count * width_, width_);
    };
    both_ = {modulation("double_stream_modulation_txt", 6), modulation("double_stream_modulation_img", 6)};
    one_ = modulation("single_stream_modulation", 3);
    refuse_uncut(tp_, heads_, "num_attention_heads", config.where());
    refuse_uncut(tp_, mlp, "mlp_ratio times the width", config.where());
    const CutReader cut{reader, tp_, /*bias=*/false};
    for (std::uint32_t i = 0; i < config.number_or("num_layers", 8, 0); ++i) {
      const std::string at = "transformer_blocks." + std::to_string(i) + ".", met = at + "attn.";
      const auto stream = [&](bool text) {
        const std::string norm = met + (text ? "norm_added_" : "norm_");
        const std::string ff = at + (text ? "ff_context." : "ff.");
        const auto projection = [&](const char* name) {
          return cut.columns(met + (text ? std::string("add_") + name + "_proj" : std::string("to_") + name),
                             width_, width_);
        };
        return JointStream{.modulation = {},
                           .q = projection("q"),
                           .k = projection("k"),
                           .v = projection("v"),
                           .out = cut.rows(met + (text ? "to_add_out" : "to_out.0"), width_, width_),
                           .up = cut.columns(ff + "linear_in", 2 * mlp, width_, {{0, mlp}, {mlp, mlp}}),
                           .down = cut.rows(ff + "linear_out", width_, mlp),
                           .norm_q = reader.tensor(norm + "q.weight", {dim_}),
                           .norm_k = reader.tensor(norm + "k.weight", {dim_}),
                           .gated = true};
      };
      double_.push_back({stream(true), stream(false)});
    }
    for (std::uint32_t i = 0; i < config.number_or("num_single_layers", 48, 0); ++i) {
      const std::string met = "single_transformer_blocks." + std::to_string(i) + ".attn.";
      const auto part = [&](const CutReader::Pieces& pieces) {
        return cut.columns(met + "to_qkv_mlp_proj", 3 * width_ + 2 * mlp, width_, pieces);
      };
      single_.push_back({.modulation = {},
                         .q = part({{0, width_}}),
                         .k = part({{width_, width_}}),
                         .v = part({{2 * width_, width_}}),
                         .out = {},
                         .up = part({{3 * width_, mlp}, {3 * width_ + mlp, mlp}}),
                         .down = cut.rows(met + "to_out", width_, width_ + mlp, {{0, width_}, {width_, mlp}}),
                         .norm_q = reader.tensor(met + "norm_q.weight", {dim_}),
                         .norm_k = reader.tensor(met + "norm_k.weight", {dim_}),
                         .gated = true});
    }
    norm_out_ = linear("norm_out.linear", 2 * width_, width_);
    proj_out_ = linear("proj_out", 4 * channels_, width_);
  }

  std::uint32_t channels() const override { return channels_; }
  std::uint32_t text_size() const override { return text_; }
  bool guided(float guidance) const override { return !embeds_guidance_ && guidance > 1; }
  std::uint32_t schedule_tokens(const LatentShape& shape) const override { return shape[2] * shape[3] / 4; }
  // compute_empirical_mu() of pipelines/flux2/pipeline_flux2.py: between lines for 10 steps and for 200.
  std::optional<double> log_shift(const LatentShape& shape, std::uint32_t steps) const override {
    const double tokens = schedule_tokens(shape);
    const double at_10 = 8.73809524e-05 * tokens + 1.89833333, at_200 = 0.00016927 * tokens + 0.45666666;
    return tokens > 4300 ? at_200 : at_200 + (at_200 - at_10) / 190 * (steps - 200.0);
  }
  std::array<std::uint32_t, 3> patch() const override { return kJointPatch; }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float guidance,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    ThreadPool& pool = ranks.pool();
    const std::uint32_t time = time_.first.weight.k();
    Rows condition = time_(sinusoids(timestep, time), pool);
    if (embeds_guidance_) {
      const Rows more = guidance_(sinusoids(1000 * guidance, time), pool);
      add(condition.data(), more.data(), width_);
    }
    activate(TowerActivation::kSilu, condition.data(), width_);

    const JointSequence sequence{shape, tokens_of(texts)};
    std::vector<JointTokens> tokens(ranks.local());
    PerRank x(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      tokens[i] = sequence.tokens(i, ranks);
      const Share& text = tokens[i].text;
      for (std::uint32_t t = text.first; t < text.first + text.count; ++t)
        tokens[i].turns.push_back(rotation({0, 0, 0, static_cast<std::int32_t>(t)}, axes_));
      tokens[i].turns =
          concatenated(std::move(tokens[i].turns), rotations(tokens[i].image, sequence.grid(), axes_));
      x[i] = concatenated(product(context_, rows_of(texts[ranks.prompt(i)].rows, text_, text), pool),
                          product(x_, sequence.patches(latents, tokens[i].image), pool));
    }
    const SequenceRanks::Call call = sequence.call(heads_ / tp_, dim_);
    const JointTables tables = {product(both_[0], condition, pool), product(both_[1], condition, pool)};
    for (const auto& block : double_) forward_joint(block, {&tables, 1}, call, tokens, x, ranks);
    const Rows table = product(one_, condition, pool);
    for (const JointStream& block : single_) forward_single(block, table, call, tokens, x, ranks);
    return sequence.finish(norm_out_, proj_out_, {&condition, 1}, x, ranks);
  }

 private:
  const std::uint32_t tp_, heads_, dim_, width_, channels_, text_;
  const bool embeds_guidance_;
  const RotaryAxes axes_;
  TowerLinear x_, context_, norm_out_, proj_out_, one_;
  std::array<TowerLinear, 2> both_;  // modulations of text and image
  Embedder time_, guidance_;
  std::vector<std::array<JointStream, 2>> double_;  // text, image
  std::vector<JointStream> single_;
};

}  // namespace

extern const DenoiserFamily kFlux2Denoiser;
const DenoiserFamily kFlux2Denoiser = {.class_name = "Flux2Transformer2DModel", .load = make_denoiser<Flux2>};

}  // namespace tpsim::rank
