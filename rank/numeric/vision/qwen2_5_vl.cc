// Qwen2.5-VL: patches in windows, RMS norms, gated MLPs with biases, and a merger of four patches into a
// token.
//
// Source: Transformers 5.23 models/qwen2_5_vl/modeling_qwen2_5_vl.py, vision_utils.py
// (get_vision_window_index); names of tensors of the Hub's checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/vision/qwen_patches.h"
#include "rank/numeric/vision/tower.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

constexpr float kQwen25Eps = 1e-6F;

void norm_rows(const std::vector<float>& weight, const float* x, std::uint32_t rows, float* out) {
  const auto size = static_cast<std::uint32_t>(weight.size());
  for (std::uint32_t r = 0; r < rows; ++r)
    rms_norm(x + std::size_t{r} * size, size, weight.data(), 0, kQwen25Eps, out + std::size_t{r} * size);
}

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

struct Qwen25Layer {
  std::vector<float> norm1, norm2;
  TowerAttention attention;
  TowerMlp mlp;
};

class Qwen25Vl : public VisionTower {
 public:
  Qwen25Vl(const VisionConfig& vision, const TensorSource& source, WeightType type, const TowerRanks& ranks)
      : vision_(vision) {
    static constexpr std::array<std::string_view, 2> kPrefixes = {"visual.", "model.visual."};
    const TowerReader reader(source, type, kPrefixes, "patch_embed.proj.weight");
    const std::uint32_t hidden = vision.hidden_size;
    const std::uint64_t side = vision.patch_size;
    const std::vector<std::uint64_t> kernel{3, vision.temporal_patch, side, side};
    patch_ = reader.whole("patch_embed.proj", hidden,
                          3 * vision.temporal_patch * vision.patch_size * vision.patch_size, false, kernel);
    for (std::uint32_t i = 0; i < vision.num_layers; ++i) layers_.push_back(layer(reader, i, ranks));
    const std::uint32_t merged = vision.projector_input;
    merger_norm_ = reader.tensor("merger.ln_q.weight", {hidden});
    merger_.activation = TowerActivation::kGelu;
    merger_.down_bias = reader.tensor("merger.mlp.2.bias", {vision.out_hidden_size});
    for (const Split& split : ranks.shards()) {
      const OutputSlice up{"merger.mlp.0", merged, share_of(merged, split)};
      merger_.shards.push_back({reader.columns({&up, 1}, merged, true),
                                reader.rows("merger.mlp.2", vision.out_hidden_size, merged, up.share)});
    }
  }

  void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks, float* out) override {
    const PatchGrid grid(vision_, layout);
    const Windows windows(vision_, grid);
    const AxialRope rope(grid, vision_.head_dim());
    const std::uint32_t rows = grid.patches();
    const std::uint32_t unit = grid.merge * grid.merge;
    const std::size_t hidden = vision_.hidden_size;
    const std::size_t all = rows * hidden;
    // From here on in the order of the windows.
    std::vector<float> x(all), normed(all), change(all);
    patch_.forward(patch_rows(vision_, grid, pixels).data(), rows, normed.data(), ranks.pool());
    for (std::size_t i = 0; i < windows.merged.size(); ++i)
      std::copy_n(normed.data() + windows.merged[i] * unit * hidden, unit * hidden,
                  x.data() + i * unit * hidden);
    const auto turn = [&](std::uint32_t row, float* head) {
      rope.turn(windows.merged[row / unit] * unit + row % unit, head);
    };
    const std::array<std::uint32_t, 2> whole{0, rows};
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      const Qwen25Layer& layer = layers_[i];
      const bool full = std::find(vision_.full_attention_at.begin(), vision_.full_attention_at.end(), i) !=
                        vision_.full_attention_at.end();
      norm_rows(layer.norm1, x.data(), rows, normed.data());
      layer.attention.forward(normed.data(), rows,
                              full ? std::span<const std::uint32_t>(whole) : windows.begins, turn, ranks,
                              change.data());
      add(x.data(), change.data(), all);
      norm_rows(layer.norm2, x.data(), rows, normed.data());
      layer.mlp.forward(normed.data(), rows, ranks, change.data());
      add(x.data(), change.data(), all);
    }
    norm_rows(merger_norm_, x.data(), rows, normed.data());
    const std::size_t width = vision_.out_hidden_size;
    std::vector<float> tokens(windows.merged.size() * width);
    merger_.forward(normed.data(), rows / unit, ranks, tokens.data());
    for (std::size_t i = 0; i < windows.merged.size(); ++i)
      std::copy_n(tokens.data() + i * width, width, out + windows.merged[i] * width);
  }

 private:
  Qwen25Layer layer(const TowerReader& reader, std::uint32_t index, const TowerRanks& ranks) const {
    const std::string at = fmt::format("blocks.{}.", index);
    const std::uint32_t hidden = vision_.hidden_size;
    Qwen25Layer layer;
    layer.norm1 = reader.tensor(at + "norm1.weight", {hidden});
    layer.norm2 = reader.tensor(at + "norm2.weight", {hidden});
    layer.attention.dim = vision_.head_dim();
    layer.attention.o_bias = reader.tensor(at + "attn.proj.bias", {hidden});
    layer.mlp.gated = true;
    layer.mlp.activation = tower_activation(vision_.hidden_act);
    layer.mlp.down_bias = reader.tensor(at + "mlp.down_proj.bias", {hidden});
    for (const Split& split : ranks.shards()) {
      const Share heads = share_of(vision_.num_heads, split);
      const Share part{heads.first * layer.attention.dim, heads.count * layer.attention.dim};
      const std::array<OutputSlice, 3> qkv = {
          {{at + "attn.qkv", 3 * hidden, part},
           {at + "attn.qkv", 3 * hidden, {hidden + part.first, part.count}},
           {at + "attn.qkv", 3 * hidden, {2 * hidden + part.first, part.count}}}};
      layer.attention.shards.push_back(
          {reader.columns(qkv, hidden, true), reader.rows(at + "attn.proj", hidden, hidden, part)});
      const std::uint32_t width = vision_.mlp_width;
      const Share share = share_of(width, split);
      const std::array<OutputSlice, 2> up = {
          {{at + "mlp.gate_proj", width, share}, {at + "mlp.up_proj", width, share}}};
      layer.mlp.shards.push_back(
          {reader.columns(up, hidden, true), reader.rows(at + "mlp.down_proj", hidden, width, share)});
    }
    return layer;
  }

  const VisionConfig vision_;
  TowerLinear patch_;
  std::vector<Qwen25Layer> layers_;
  std::vector<float> merger_norm_;
  TowerMlp merger_;
};

std::unique_ptr<VisionTower> load_qwen2_5_vl(const VisionConfig& vision, const TensorSource& source,
                                             WeightType type, const TowerRanks& ranks) {
  return std::make_unique<Qwen25Vl>(vision, source, type, ranks);
}

constexpr std::array<std::string_view, 1> kQwen25Architectures = {"Qwen2_5_VLForConditionalGeneration"};

}  // namespace

extern const TowerFamily kQwen25VlTower;
const TowerFamily kQwen25VlTower = {kQwen25Architectures, load_qwen2_5_vl};

}  // namespace tpsim::rank
