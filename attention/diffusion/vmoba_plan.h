// V-MoBA's chunks: layers take them along time, in the frame's plane, or in both, in turn.
//
// Source: SGLang 0.5.23 backends/vmoba.py, csrc/attn/vmoba_attn (process_moba_input).
#pragma once

#include <array>
#include <cstdint>

#include "attention/diffusion/backend.h"
#include "attention/diffusion/grid.h"

namespace tpsim::attention {

struct VmobaLayer {
  GridSize chunk{};  // of latent frames, rows and columns
  std::uint32_t topk = 0;
};

class VmobaPlan {
 public:
  explicit VmobaPlan(const DiffusionParameters& parameters);

  // Whether the layer attends to everything.
  bool full(std::uint32_t step, std::uint32_t layer) const {
    return step < full_steps_ || layer < full_layers_;
  }
  // Throws UserError naming --attention-backend-config where the rows, columns or (but in temporal layers)
  // frames are no multiple of the chunk's.
  VmobaLayer layer(std::uint32_t layer, const GridSize& grid) const;

 private:
  struct Kind {
    GridSize chunk{};  // 0: the grid's whole side
    std::uint32_t topk = 0;
    std::uint32_t layers = 0;  // of a round
  };
  std::array<Kind, 3> kinds_;
  std::uint32_t full_steps_, full_layers_;
};

}  // namespace tpsim::attention
