// Qwen2.5-VL: patches in windows, RMS norms, gated MLPs with biases, and a merger of four patches into a
// token.
//
// Source: Transformers 5.23 models/qwen2_5_vl/modeling_qwen2_5_vl.py, vision_utils.py
// (get_vision_window_index); names of tensors of the Hub's checkpoints.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

// Merged patches window by window, and where windows of patches begin. Windows are cut off at the right and
// lower edge.
struct Windows {
  std::vector<std::uint32_t> merged;  // of the reordered sequence: which merged patch it is
  std::vector<std::uint32_t> begins{0};

  Windows(const VisionConfig& vision, const PatchGrid& grid) {
    const std::uint32_t rows = grid.rows / grid.merge;
    const std::uint32_t columns = grid.columns / grid.merge;
    const std::uint32_t side = vision.window_size / grid.merge / vision.patch_size;
    for (std::uint32_t top = 0; top < rows; top += side) {
      for (std::uint32_t left = 0; left < columns; left += side) {
        for (std::uint32_t y = top; y < std::min(top + side, rows); ++y) {
          for (std::uint32_t x = left; x < std::min(left + side, columns); ++x)
            merged.push_back(y * columns + x);
        }
        begins.push_back(static_cast<std::uint32_t>(merged.size()) * grid.merge * grid.merge);
      }
    }
  }
};

class Qwen25Vl : public VisionTower {
 public:
  Qwen25Vl(const VisionConfig& vision, const TensorSource& source, WeightType type, const TowerRanks& ranks)
      : vision_(vision) {
    const TowerReader reader(source, type, {"visual.", "model.visual."}, "patch_embed.proj.weight");
    const std::uint64_t side = vision.patch_size;
    patch_ =
        reader.whole("patch_embed.proj", vision.hidden_size, {3, vision.temporal_patch, side, side}, false);
    const VitNames names{.layers = "blocks.",
                         .norm1 = "norm1",
                         .norm2 = "norm2",
                         .qkv = "attn.qkv",
                         .out = "attn.proj",
                         .gate = "mlp.gate_proj",
                         .fc1 = "mlp.up_proj",
                         .fc2 = "mlp.down_proj"};
    layers_ = std::make_unique<const VitLayers>(vision, names, reader, ranks);
    merger_norm_ = reader.norm("merger.ln_q", vision.hidden_size, vision.norm_eps, /*rms=*/true);
    merger_ =
        reader.mlp({"merger.mlp.0"}, "merger.mlp.2",
                   {vision.projector_input, vision.projector_input, vision.out_hidden_size}, true, ranks);
  }

  void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks, float* out) override {
    const PatchGrid grid(vision_, layout);
    const Windows windows(vision_, grid);
    const AxialRope rope(grid, vision_.head_dim());
    const std::uint32_t rows = grid.patches();
    const std::uint32_t unit = grid.merge * grid.merge;
    const std::size_t hidden = vision_.hidden_size;
    // From here on in the order of the windows.
    std::vector<float> x(rows * hidden), normed(rows * hidden);
    patch_.forward(patch_rows(vision_, grid, pixels).data(), rows, normed.data(), ranks.pool());
    for (std::size_t i = 0; i < windows.merged.size(); ++i)
      std::copy_n(normed.data() + windows.merged[i] * unit * hidden, unit * hidden,
                  x.data() + i * unit * hidden);
    const auto turn = [&](std::uint32_t row, float* head) {
      rope.turn(windows.merged[row / unit] * unit + row % unit, head);
    };
    const std::array<std::uint32_t, 2> whole{0, rows};
    for (std::uint32_t i = 0; i < layers_->size(); ++i) {
      const bool full = std::ranges::count(vision_.full_attention_at, i) > 0;
      layers_->forward(i, x.data(), full ? std::span<const std::uint32_t>(whole) : windows.begins, turn,
                       ranks);
    }
    merger_norm_.apply(x.data(), rows, normed.data(), ranks.pool());
    const std::size_t width = vision_.out_hidden_size;
    std::vector<float> tokens(windows.merged.size() * width);
    merger_.forward(normed.data(), rows / unit, ranks, tokens.data());
    for (std::size_t i = 0; i < windows.merged.size(); ++i)
      std::copy_n(tokens.data() + i * width, width, out + windows.merged[i] * width);
  }

 private:
  const VisionConfig vision_;
  TowerLinear patch_;
  std::unique_ptr<const VitLayers> layers_;
  TowerNorm merger_norm_;
  TowerMlp merger_;
};

}  // namespace

extern const TowerFamily kQwen25VlTower;
const TowerFamily kQwen25VlTower = {{"Qwen2_5_VLForConditionalGeneration"}, load_tower<Qwen25Vl>};

}  // namespace tpsim::rank
