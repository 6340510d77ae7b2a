// Qwen-Image, as Diffusers' QwenImageTransformer2DModel has it: blocks of joint attention with a stream each
// for text and image, or images, where some are given to be edited. An image's positions are counted from its
// middle, those of the text go on along the diagonal from where the image ends.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

class QwenImage : public Denoiser {
 public:
  QwenImage(const ConfigReader& config, const TensorSource& source, std::uint32_t tp_size)
      : tp_(tp_size),
        heads_(config.number_or("num_attention_heads", 24)),
        dim_(config.number_or("attention_head_dim", 128, 2)),
        width_(heads_ * dim_),
        channels_(config.number_or("out_channels", 16)),
        text_(config.number_or("joint_attention_dim", 3584)),
        axes_(read_rotary_axes(config, "axes_dims_rope", {.sizes = {16, 56, 56}}, dim_)) {
    for (const char* const key :
         {"guidance_embeds", "zero_cond_t", "use_additional_t_cond", "use_layer3d_rope"}) {
      if (config.flag(key, false))
        throw_user_error("{}: key \"{}\" is true, which is not computed", config.where(), key);
    }
    if (config.number_or("in_channels", 64) != 4 * channels_ || config.number_or("patch_size", 2) != 2)
      throw_user_error(
          "{}: keys \"in_channels\" and \"patch_size\" must be 4 times out_channels and 2: no other "
          "Qwen-Image is computed",
          config.where());
    const TowerReader reader(source, WeightType::kFp32, {""}, "img_in.weight");
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/true);
    };
    image_in_ = linear("img_in", width_, 4 * channels_);
    text_norm_ = reader.norm("txt_norm", text_, kJointEps, /*rms=*/true);
    text_in_ = linear("txt_in", width_, text_);
    time_ = {.first = linear("time_text_embed.timestep_embedder.linear_1", width_, kJointTimeSize),
             .second = linear("time_text_embed.timestep_embedder.linear_2", width_, width_)};
    refuse_uncut(tp_, heads_, "num_attention_heads", config.where());
    const CutReader cut{reader, tp_};
    for (std::uint32_t i = 0; i < config.number_or("num_layers", 60); ++i) {
      const std::string at = "transformer_blocks." + std::to_string(i) + ".";
      const auto stream = [&](bool text) {
        const std::string kind = at + (text ? "txt" : "img");
        return read_joint_stream(cut, at + "attn.", text, kind + "_mod.1", kind + "_mlp.net.0.proj",
                                 kind + "_mlp.net.2", width_, dim_);
      };
      blocks_.push_back({stream(true), stream(false)});
    }
    norm_out_ = linear("norm_out.linear", 2 * width_, width_);
    proj_out_ = linear("proj_out", 4 * channels_, width_);
  }

  std::uint32_t channels() const override { return channels_; }
  std::uint32_t text_size() const override { return text_; }
  std::uint32_t schedule_tokens(const LatentShape& shape) const override { return shape[2] * shape[3] / 4; }
  std::array<std::uint32_t, 3> patch() const override { return kJointPatch; }

  // Of each token as long as the prompt's: pipeline_qwenimage.py, and SGLang's
  // QwenImagePipelineConfig.postprocess_cfg_noise.
  void guide(const LatentShape& shape, float guidance, std::span<const float> other,
             std::vector<float>& prompt) const override {
    const attention::GridSize grid = {1, shape[2] / 2, shape[3] / 2};
    std::vector<float> lengths(std::size_t{grid[1]} * grid[2]), guided_lengths(lengths.size());
    std::vector<float> guided = prompt;
    Denoiser::guide(shape, guidance, other, guided);
    const auto each = [&](const auto& of) {
      for_patches(shape, kJointPatch, grid, {0, grid[1] * grid[2]},
                  [&](std::uint32_t token, std::uint32_t, std::size_t at) { of(token, at); });
    };
    each([&](std::uint32_t token, std::size_t at) {
      lengths[token] += prompt[at] * prompt[at];
      guided_lengths[token] += guided[at] * guided[at];
    });
    each([&](std::uint32_t token, std::size_t at) {
      prompt[at] = guided[at] * std::sqrt(lengths[token] / std::max(guided_lengths[token], 1e-24F));
    });
  }

  std::vector<std::vector<float>> forward(const LatentShape& shape, std::span<const float> latents,
                                          float timestep, float /*guidance*/,
                                          std::span<const TextEmbeddings> texts,
                                          SequenceRanks& ranks) const override {
    ThreadPool& pool = ranks.pool();
    Rows condition = time_(sinusoids(timestep, kJointTimeSize), pool);
    activate(TowerActivation::kSilu, condition.data(), width_);

    // Images to edit lie behind the latents, and their tokens behind the latents' tokens.
    const auto images = static_cast<std::uint32_t>(latents.size() / elements(shape));
    const JointSequence sequence(shape, tokens_of(texts), images);
    const auto rows = static_cast<std::int32_t>(sequence.grid()[1]),
               columns = static_cast<std::int32_t>(sequence.grid()[2]);
    std::vector<JointTokens> tokens(ranks.local());
    PerRank x(ranks.local());
    for (std::uint32_t i = 0; i < ranks.local(); ++i) {
      tokens[i] = sequence.tokens(i, ranks);
      const Share& text = tokens[i].text;
      for (std::uint32_t t = text.first; t < text.first + text.count; ++t) {
        const std::int32_t place = std::max(rows / 2, columns / 2) + static_cast<std::int32_t>(t);
        tokens[i].turns.push_back(rotation({place, place, place}, axes_));
      }
      tokens[i].turns = concatenated(
          std::move(tokens[i].turns),
          rotations(tokens[i].image, sequence.grid(), axes_, {0, rows / 2 - rows, columns / 2 - columns}));
      Rows embeddings = rows_of(texts[ranks.prompt(i)].rows, text_, text);
      text_norm_.apply(embeddings.data(), text.count, embeddings.data(), pool);
      x[i] = concatenated(product(text_in_, embeddings, pool),
                          product(image_in_, sequence.patches(latents, tokens[i].image), pool));
    }
    for (const auto& block : blocks_) {
      const JointTables tables = modulations(block, condition, pool);
      forward_joint(block, {&tables, 1}, sequence.call(heads_ / tp_, dim_), tokens, x, ranks);
    }
    return sequence.finish(norm_out_, proj_out_, {&condition, 1}, x, ranks);
  }

 private:
  const std::uint32_t tp_, heads_, dim_, width_, channels_, text_;
  const RotaryAxes axes_;
  TowerLinear image_in_, text_in_, norm_out_, proj_out_;
  TowerNorm text_norm_;
  Embedder time_;
  std::vector<std::array<JointStream, 2>> blocks_;  // text, image
};

}  // namespace

extern const DenoiserFamily kQwenImageDenoiser;
const DenoiserFamily kQwenImageDenoiser = {.class_name = "QwenImageTransformer2DModel",
                                           .load = make_denoiser<QwenImage>};

}  // namespace tpsim::rank
