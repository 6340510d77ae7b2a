// Video sparse attention: tokens in tiles of 4 x 4 x 4; a coarse pass over the tiles' means chooses for each
// tile of queries the tiles of keys that it meets exactly.
//
// Sources: arXiv 2505.13389; SGLang 0.5.23 backends/video_sparse_attn.py (tiles, top k, what is copied).
#include <algorithm>
#include <array>
#include <cmath>

#include "attention/diffusion/dense_kernel.h"
#include "attention/diffusion/grid.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr GridSize kTile = {4, 4, 4};
constexpr double kTileTokens = 64;
constexpr std::array<std::uint32_t, 2> kHeadSizes = {64, 128};

constexpr DiffusionParameter kParameters[] = {
    {.name = "sparsity",
     .alias = "VSA_sparsity",
     .default_value = "0",
     .max = 1,
     .meaning = "share of the tiles of keys that a tile of queries leaves out"},
};

class VideoSparsePrice : public DiffusionPrice {
 public:
  VideoSparsePrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : sparsity_(real_parameter(parameters, "sparsity")),
        // Its kernel for Hopper is ThunderKittens', the others' is Triton's.
        hopper_(parse_gpu_generation(profile.architecture()) == GpuGeneration::kHopper),
        kernel_(profile, hopper_ ? kFlashKernel : kTritonKernel) {}

  KernelCost layer(const DiffusionCall& call) const override {
    const double tiles = grid_tokens(tiles_of(grid_of(call), kTile));
    const double kept = kept_tiles(tiles);
    // 85 % of FlashAttention 3's rate (abstract). Tiles at the rim are computed whole.
    KernelCost cost = kernel_.part(call, tiles * kTileTokens, kept * kTileTokens, hopper_ ? 0.85 : 1);
    // The coarse pass: means of q, k and v meet each other; scores in fp32 are written, read by softmax, by
    // the top k and by the product with the values.
    const double scores = 4 * call.batch * call.heads * tiles * tiles;
    cost += kernel_.traffic(4 * scores + 3 * token_bytes(call, tiles * kTileTokens), 12);
    // q, k, v and the gate are gathered into tiles and made contiguous by head (read and written each time),
    // the coarse result is gated and added, the output gathered back.
    cost += kernel_.traffic(22 * token_bytes(call, tiles * kTileTokens), 14);
    return cost;
  }
  double share(const DiffusionCall& call) const override {
    const double tiles = grid_tokens(tiles_of(grid_of(call), kTile));
    return kept_tiles(tiles) / tiles;
  }
  bool measured() const override { return false; }

 private:
  double kept_tiles(double tiles) const { return std::clamp(std::ceil((1 - sparsity_) * tiles), 1.0, tiles); }

  double sparsity_;
  bool hopper_;
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend video_sparse_attn;
const DiffusionBackend video_sparse_attn = {
    .name = "video_sparse_attn",
    .enum_name = "VIDEO_SPARSE_ATTN",
    .package = "vsa",
    .module = "vsa",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = kCudaGenerations,
    .head_sizes = {.listed = kHeadSizes},
    .sparse = true,
    .parameters = kParameters,
    .create = create_price<VideoSparsePrice>,
    .note = "CUDA only",
};

}  // namespace tpsim::attention::diffusion
