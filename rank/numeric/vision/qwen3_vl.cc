// Qwen3-VL: a grid of learned positions stretched over the image, LayerNorms, plain MLPs, and mergers after
// several layers, whose outputs the first text layers add (deepstack).
//
// Source: Transformers 5.23 models/qwen3_vl/modeling_qwen3_vl.py, vision_utils.py
// (get_vision_interpolation_indices_and_weights: bilinear, corners aligned); names of tensors of the Hub's
// checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

// `norm` is of merged patches, or of each patch of one.
struct Merger {
  TowerNorm norm;
  TowerMlp mlp;
};

// Where a patch lies between two positions of the learned grid, along one axis.
struct Between {
  std::uint32_t low = 0, high = 0;
  float weight = 0;  // of `high`

  Between(std::uint32_t index, std::uint32_t count, std::uint32_t side) {
    const auto last = static_cast<float>(side - 1);
    const float at = static_cast<float>(index) * last / static_cast<float>(std::max(count - 1, 1U));
    low = static_cast<std::uint32_t>(at);
    high = std::min(low + 1, side - 1);
    weight = at - static_cast<float>(low);
  }
};

class Qwen3Vl : public VisionTower {
 public:
  Qwen3Vl(const VisionConfig& vision, const TensorSource& source, WeightType type, const TowerRanks& ranks)
      : vision_(vision), side_(static_cast<std::uint32_t>(std::sqrt(vision.position_embeddings))) {
    if (side_ * side_ != vision.position_embeddings)
      throw_user_error("vision_config: num_position_embeddings {} is no square", vision.position_embeddings);
    const TowerReader reader(source, type, {"model.visual.", "visual."}, "patch_embed.proj.weight");
    const std::uint64_t side = vision.patch_size;
    patch_ =
        reader.whole("patch_embed.proj", vision.hidden_size, {3, vision.temporal_patch, side, side}, true);
    // Whole on every rank, unlike SGLang's, which is looked up in parts that are then summed: equal numbers.
    positions_ = reader.tensor("pos_embed.weight", {vision.position_embeddings, vision.hidden_size});
    const VitNames names{.layers = "blocks.",
                         .norm1 = "norm1",
                         .norm2 = "norm2",
                         .qkv = "attn.qkv",
                         .out = "attn.proj",
                         .fc1 = "mlp.linear_fc1",
                         .fc2 = "mlp.linear_fc2"};
    layers_ = std::make_unique<const VitLayers>(vision, names, reader, ranks);
    mergers_.push_back(merger(reader, "merger.", vision.hidden_size, ranks));
    for (std::uint32_t i = 0; i < vision.deepstack; ++i)
      mergers_.push_back(
          merger(reader, fmt::format("deepstack_merger_list.{}.", i), vision.projector_input, ranks));
  }

  void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks, float* out) override {
    const PatchGrid grid(vision_, layout);
    const AxialRope rope(grid, vision_.head_dim());
    const std::uint32_t rows = grid.patches();
    std::vector<float> x(std::size_t{rows} * vision_.hidden_size);
    patch_.forward(patch_rows(vision_, grid, pixels).data(), rows, x.data(), ranks.pool());
    add_positions(grid, x.data());
    const auto turn = [&](std::uint32_t row, float* head) { rope.turn(row, head); };
    const std::array<std::uint32_t, 2> whole{0, rows};
    for (std::uint32_t i = 0; i < layers_->size(); ++i) {
      layers_->forward(i, x.data(), whole, turn, ranks);
      for (std::uint32_t k = 0; k < vision_.deepstack; ++k) {
        if (vision_.deepstack_at[k] == i) merge(k + 1, x, grid, ranks, out);
      }
    }
    merge(0, x, grid, ranks, out);
  }

 private:
  // The part `index` of each row of `out`.
  void merge(std::uint32_t index, const std::vector<float>& x, const PatchGrid& grid, TowerRanks& ranks,
             float* out) const {
    const Merger& merger = mergers_[index];
    const std::uint32_t tokens = grid.patches() / (grid.merge * grid.merge);
    const std::size_t width = vision_.out_hidden_size;
    std::vector<float> normed(x.size()), merged(tokens * width);
    merger.norm.apply(x.data(), static_cast<std::uint32_t>(x.size() / merger.norm.weight.size()),
                      normed.data(), ranks.pool());
    merger.mlp.forward(normed.data(), tokens, ranks, merged.data());
    for (std::uint32_t t = 0; t < tokens; ++t)
      std::copy_n(merged.data() + t * width, width, out + (t * mergers_.size() + index) * width);
  }

  void add_positions(const PatchGrid& grid, float* x) const {
    const std::size_t hidden = vision_.hidden_size;
    for (std::uint32_t patch = 0; patch < grid.patches(); ++patch) {
      const Between y(grid.row_of(patch), grid.rows, side_);
      const Between z(grid.column_of(patch), grid.columns, side_);
      const auto corner = [&](std::uint32_t row, std::uint32_t column) {
        return positions_.data() + (std::size_t{row} * side_ + column) * hidden;
      };
      const std::array<const float*, 4> corners = {corner(y.low, z.low), corner(y.low, z.high),
                                                   corner(y.high, z.low), corner(y.high, z.high)};
      const std::array<float, 4> weights = {(1 - y.weight) * (1 - z.weight), (1 - y.weight) * z.weight,
                                            y.weight * (1 - z.weight), y.weight * z.weight};
      float* const to = x + patch * hidden;
      for (std::size_t c = 0; c < hidden; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < corners.size(); ++k) sum += corners[k][c] * weights[k];
        to[c] += sum;
      }
    }
  }

  Merger merger(const TowerReader& reader, const std::string& at, std::uint32_t normed,
                const TowerRanks& ranks) const {
    const std::uint32_t width = vision_.projector_input;
    return {reader.norm(at + "norm", normed, vision_.norm_eps),
            reader.mlp({at + "linear_fc1"}, at + "linear_fc2", {width, width, vision_.out_hidden_size}, true,
                       ranks)};
  }

  const VisionConfig vision_;
  const std::uint32_t side_;  // of the grid of positions
  TowerLinear patch_;
  std::vector<float> positions_;
  std::unique_ptr<const VitLayers> layers_;
  std::vector<Merger> mergers_;  // that of the embeddings, then deepstack's
};

}  // namespace

extern const TowerFamily kQwen3VlTower;
const TowerFamily kQwen3VlTower = {{"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"},
                                   load_tower<Qwen3Vl>};

}  // namespace tpsim::rank
