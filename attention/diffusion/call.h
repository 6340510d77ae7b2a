// What a layer of a diffusion transformer asks of its attention backend.
#pragma once

#include <array>
#include <cstdint>

namespace tpsim::attention {

// One layer's attention over `batch` samples on one GPU, after the exchanges of sequence parallelism.
struct DiffusionCall {
  double batch = 1;
  double queries = 0, keys = 0;           // tokens of one sample
  std::uint32_t heads = 0, head_dim = 0;  // of this GPU
  bool cross = false;                     // keys are of another sequence (text)
  // The video's tokens as a grid: latent frames, rows, columns after patching; zeros: no video. Sparse
  // backends select in it.
  std::array<std::uint32_t, 3> grid{};
  std::uint32_t text = 0;               // of queries and keys, tokens beside the grid (joint attention)
  std::uint32_t layer = 0, layers = 1;  // of the transformer
  std::uint32_t step = 0, steps = 1;    // of the denoising loop
  bool kernel_alone = false;            // without quantising and smoothing before it, as papers time kernels
};

// Every query meets every key: floating-point operations of both products.
inline double dense_flops(const DiffusionCall& call) {
  return 4 * call.batch * call.queries * call.keys * call.heads * call.head_dim;
}
// One of q, k, v or the output over so many tokens of each sample, 16 bit.
inline double token_bytes(const DiffusionCall& call, double tokens) {
  return 2 * call.batch * tokens * call.heads * call.head_dim;
}

}  // namespace tpsim::attention
