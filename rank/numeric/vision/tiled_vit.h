// The encoder that Gemma 3 (SigLIP), Llama 4 and InternVL have in common: square tiles of patches, each of
// which attends to itself alone, through layers x += attention(norm(x)), x += mlp(norm(x)). What they differ
// in are the names of tensors, norms, positions, and what becomes of the rows behind.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rank/linear/packed_matrix.h"
#include "rank/numeric/vision/pixels.h"
#include "rank/numeric/vision/tower_layers.h"
#include "rank/numeric/vision/tower_ranks.h"

namespace tpsim::rank {

// Patches of all tiles, row by row: [tiles x patches, 3 x patch x patch], channels first, as a convolution
// whose stride is its kernel reads them.
std::vector<float> square_patches(const ImagePixels& pixels, std::uint32_t patch);

// x [tiles, side x side, size]: squares of `merge` x `merge` rows become one, rows of the square after each
// other: [tiles, (side / merge)^2, merge x merge x size]. `transposed`: squares come column by column
// (ps_version v1 of InternVL).
std::vector<float> merge_squares(const float* x, std::uint32_t tiles, std::uint32_t side, std::uint32_t merge,
                                 std::uint32_t size, bool transposed);

// A norm over the whole row; without bias the root mean square, weights alone.
struct TowerNorm {
  std::vector<float> weight, bias;
  float eps = 1e-6F;
  void apply(const float* x, std::uint32_t rows, float* out, ThreadPool& pool) const;
};

// Names of a layer's tensors behind "PREFIX N."; empty: there is none.
struct TiledVitNames {
  std::string layers = {};  // PREFIX
  std::string norm1 = {}, norm2 = {};
  std::string q = {}, k = {}, v = {}, qkv = {};  // three tensors, or one
  std::string out = {}, fc1 = {}, fc2 = {};
  std::string scale1 = {}, scale2 = {};  // of what is added to x
  std::string q_norm = {}, k_norm = {};  // root mean square, over all heads
};

struct TiledVitConfig {
  std::uint32_t num_layers = 0, hidden_size = 0, intermediate_size = 0, num_heads = 0;
  float eps = 1e-6F;
  bool rms_norm = false;
  bool qkv_bias = true;
  TowerActivation activation = TowerActivation::kGelu;
};

class TiledVit {
 public:
  // Throws UserError where a tensor is missing or misshaped.
  TiledVit(const TiledVitConfig& config, const TiledVitNames& names, const TowerReader& reader,
           const TowerRanks& ranks);

  // Turns a query or key [dim] of row `row` of its tile.
  using Turn = std::function<void(std::uint32_t row, float* head)>;
  // x [tiles x length, hidden_size], in place. `turn` may be empty.
  void forward(float* x, std::uint32_t tiles, std::uint32_t length, const Turn& turn,
               TowerRanks& ranks) const;

 private:
  struct Layer {
    TowerNorm norm1, norm2;
    TowerAttention attention;
    TowerMlp mlp;
    std::vector<float> scale1, scale2;
  };
  Layer read_layer(const TiledVitNames& names, const TowerReader& reader, const TowerRanks& ranks,
                   const std::string& at) const;

  const TiledVitConfig config_;
  std::vector<Layer> layers_;
};

}  // namespace tpsim::rank
