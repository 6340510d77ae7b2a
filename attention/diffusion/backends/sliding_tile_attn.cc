// Sliding tile attention: tokens in tiles of 6 x 8 x 8; a tile of queries meets the tiles of keys of a window
// round it, whose size a file gives for each step, layer and head.
//
// Sources: arXiv 2502.04507; SGLang 0.5.23 backends/sliding_tile_attn.py (sizes), mask_strategy.py (the
// file).
#include <algorithm>
#include <array>

#include "attention/diffusion/dense_kernel.h"
#include "attention/diffusion/grid.h"
#include "attention/diffusion/mask_strategy.h"
#include "proto/base/error.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr GridSize kTile = {6, 8, 8};
constexpr std::array<std::uint32_t, 8> kHeadSizes = {32, 64, 96, 128, 160, 192, 224, 256};
// Of FlashAttention 3's rate: 58.79 % of the peak against 62.49 % (the paper's table of kernels, H100).
constexpr double kRate = 0.94;

// Tokens of video and text together that it knows, and the video's grid there.
struct Size {
  double least = 0, most = 0;
  GridSize grid{};
};
constexpr Size kSizes[] = {
    {115200, 115456, {30, 48, 80}}, {82944, 82944, {36, 48, 48}}, {69120, 69120, {18, 48, 80}}};

constexpr std::string_view kModes[] = {"STA_inference"};
constexpr DiffusionParameter kParameters[] = {
    {.name = "mask_strategy_file_path",
     .type = ParameterType::kText,
     .required = true,
     .meaning = "a JSON file of windows by step, layer and head"},
    {.name = "sta_mode",
     .alias = "STA_mode",
     .type = ParameterType::kText,
     .default_value = "STA_inference",
     .choices = kModes,
     .meaning = "what is done with windows; searching and tuning them is not simulated"},
    {.name = "skip_time_steps",
     .type = ParameterType::kInteger,
     .default_value = "15",
     .meaning = "first steps with full attention"},
};

class SlidingTilePrice : public DiffusionPrice {
 public:
  SlidingTilePrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : strategy_(read_mask_strategy(text_parameter(parameters, "mask_strategy_file_path"))),
        full_steps_(count_parameter(parameters, "skip_time_steps")),
        kernel_(profile, kFlashKernel) {}

  KernelCost layer(const DiffusionCall& call) const override {
    const double keys = share(call) * call.keys;
    KernelCost cost = kernel_.part(call, call.queries, keys, kRate);
    // q, k and v into tiles and by head, the output back: read and written each time.
    cost += kernel_.traffic(16 * token_bytes(call, call.queries), 8);
    return cost;
  }
  double share(const DiffusionCall& call) const override {
    const Size& size = size_of(call);
    if (call.step < full_steps_) return 1;
    const double windows = strategy_.share(call.step, call.layer, tiles_of(size.grid, kTile));
    // Text meets all, and all meet it.
    const double video = grid_tokens(size.grid) / std::max(call.queries, grid_tokens(size.grid));
    return 1 - video * video * (1 - windows);
  }
  bool measured() const override { return false; }

 private:
  static const Size& size_of(const DiffusionCall& call) {
    for (const Size& size : kSizes) {
      if (call.queries >= size.least && call.queries <= size.most) return size;
    }
    throw_user_error(
        "--attention-backend sliding_tile_attn: the transformer has {:.0f} tokens; it knows 69120 "
        "(18x48x80 after patching), 82944 (36x48x48) and 115200 to 115456 (30x48x80)",
        call.queries);
  }

  MaskStrategy strategy_;
  std::uint32_t full_steps_;
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend sliding_tile_attn;
const DiffusionBackend sliding_tile_attn = {
    .name = "sliding_tile_attn",
    .enum_name = "SLIDING_TILE_ATTN",
    .package = "st_attn",
    .module = "st_attn",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = {GpuGeneration::kHopper},
    .head_sizes = {.listed = kHeadSizes},
    .sparse = true,
    .parameters = kParameters,
    .create = create_price<SlidingTilePrice>,
    .note = "CUDA only; its kernels are for Hopper",
};

}  // namespace tpsim::attention::diffusion
