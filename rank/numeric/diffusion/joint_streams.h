// Joint attention over the text and an image of 2 x 2 patches (FLUX, Qwen-Image): text and image are one
// sequence here, which all ranks share, with layers of their own; SGLang has the text on each rank, which
// computes the same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rank/numeric/diffusion/denoiser.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/sequence_ranks.h"

namespace tpsim::rank {

using PerRank = SequenceRanks::PerRank;
using Rows = std::vector<float>;

constexpr float kJointEps = 1e-6F;  // of every norm, as Diffusers' transformers have it
constexpr std::array<std::uint32_t, 3> kJointPatch = {1, 2, 2};
constexpr std::uint32_t kJointTimeSize = 256, kJointMlpRatio = 4;  // of FLUX.1 and Qwen-Image

template <typename T>
std::vector<T> concatenated(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// How many tokens one or two prompts have.
SequenceRanks::OfPrompts tokens_of(std::span<const TextEmbeddings> texts);
// Those of a share, of rows of `width`.
Rows rows_of(const Rows& rows, std::uint32_t width, const Share& share);
// q or k of all heads, each by its root mean square; `norm` has the size of a head.
Rows headed(const TowerLinear& linear, const Rows& norm, float eps, const Rows& x, ThreadPool& pool);

// What a rank has: tokens of the text, then of the image.
struct JointTokens {
  Share text, image;
  std::vector<Rotation> turns;
};

class JointSequence {
 public:
  // `images` of `shape`, of which the first is made and the others are given. Throws UserError naming
  // --latent-size unless it is an image's.
  JointSequence(const LatentShape& shape, const SequenceRanks::OfPrompts& text, std::uint32_t images = 1);

  const attention::GridSize& grid() const { return grid_; }  // image, row, column
  std::uint32_t count(std::uint32_t prompt) const { return text_[prompt] + grid_[0] * grid_[1] * grid_[2]; }
  // Of local rank i, without turns.
  JointTokens tokens(std::uint32_t i, const SequenceRanks& ranks) const;
  // Rows of 4 x channels. `latents`: image after image.
  Rows patches(std::span<const float> latents, const Share& image) const;
  // `heads`: of a shard.
  SequenceRanks::Call call(std::uint32_t heads, std::uint32_t dim) const;
  // Of each prompt the latents that `proj` makes of x, normed, scaled and shifted by what `norm` says of the
  // prompt's condition, or that of all (scale, then shift: Diffusers' AdaLayerNormContinuous).
  std::vector<std::vector<float>> finish(const TowerLinear& norm, const TowerLinear& proj,
                                         std::span<const Rows> conditions, const PerRank& x,
                                         SequenceRanks& ranks, bool channels_last = false) const;
  // Of each prompt the latents of the first image, of rows [tokens, 4 x channels] of the ranks, in which a
  // token's channels lie together, or those of a place.
  std::vector<std::vector<float>> unpatched(const PerRank& rows, SequenceRanks& ranks,
                                            bool channels_last = false) const;

 private:
  LatentShape shape_;
  SequenceRanks::OfPrompts text_;
  attention::GridSize grid_;
};

// Of text or image; of a block of one stream there is no `out`, `up` is FLUX's proj_mlp, `down` its proj_out.
struct JointStream {
  TowerLinear modulation;
  CutLinear q, k, v, out, up, down;
  Rows norm_q, norm_k;
  bool gated = false;  // the MLP: SiLU of half of `up` times the other; else GELU of it
};
// Of a block that has both, `text` or image: tensors `modulation`, `up` and `down` of the block, and those of
// Diffusers' joint Attention at `attention`. `dim`: of a head. `last`: nothing reads the stream behind it, so
// that it gives keys and values (and queries) alone.
JointStream read_joint_stream(const CutReader& reader, const std::string& attention, bool text,
                              const std::string& modulation, const std::string& up, const std::string& down,
                              std::uint32_t width, std::uint32_t dim, bool last = false);
// Shift, scale and gate of attention, then of the MLP, of each stream.
using JointTables = std::array<Rows, 2>;
JointTables modulations(const std::array<JointStream, 2>& block, const Rows& condition, ThreadPool& pool);
// x through a block; streams: text's, then image's. `tables`: of each prompt, or those of all. Text that
// nothing reads any more has no `out`.
void forward_joint(const std::array<JointStream, 2>& block, std::span<const JointTables> tables,
                   const SequenceRanks::Call& call, const std::vector<JointTokens>& tokens, PerRank& x,
                   SequenceRanks& ranks);
// Through one of one stream, whose attention and MLP lie beside each other. `table`: shift, scale, gate.
void forward_single(const JointStream& block, const Rows& table, const SequenceRanks::Call& call,
                    const std::vector<JointTokens>& tokens, PerRank& x, SequenceRanks& ranks);

}  // namespace tpsim::rank
