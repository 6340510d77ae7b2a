// A block of Z-Image: attention and a gated MLP, each between two root mean square norms, which the condition
// scales and gates.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/joint_streams.h"
#include "rank/numeric/diffusion/sequence_ranks.h"

namespace tpsim::rank {

struct ZImageSizes {
  std::uint32_t width = 0, dim = 0, mlp = 0;  // dim: of a head
  std::uint32_t condition = 0;
  float eps = 1e-5F;
};

struct ZImageBlock {
  TowerLinear modulation;  // of refiners of text: none
  TowerNorm before_attention, after_attention, before_mlp, after_mlp;
  CutLinear q, k, v, out, gate, up, down;
  Rows norm_q, norm_k;

  // x of the ranks through it, whose rows turn by `turns`. `attend(q, k, v, out)`: heads of the ranks.
  using Attend = std::function<void(const PerRank& q, const PerRank& k, const PerRank& v, PerRank& out)>;
  void forward(const Rows& condition, const std::vector<std::vector<Rotation>>& turns, PerRank& x,
               SequenceRanks& ranks, const Attend& attend) const;
};
// Tensors at `at`. Throws UserError where one is missing or misshaped.
ZImageBlock read_z_image_block(const CutReader& cut, const std::string& at, const ZImageSizes& sizes,
                               bool modulated);

}  // namespace tpsim::rank
