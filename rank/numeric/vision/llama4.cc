// Llama 4: tiles with a class token after their patches, rotated by row and column, shuffled into fewer and
// wider rows; an adapter of two layers, cut over the ranks, and a last one that is not. SGLang 0.5.23
// models/mllama4.py, Transformers 5.23 modeling_llama4.py.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

class Llama4Tower : public VisionTower {
 public:
  Llama4Tower(const VisionConfig& vision, const TensorSource& source, WeightType type,
              const TowerRanks& ranks)
      : vision_(vision), side_(vision.image_size / vision.patch_size) {
    const std::uint32_t hidden = vision.hidden_size;
    if (vision.head_dim() % 4 != 0)
      throw_user_error("vision_config: heads of {} cannot be turned by rows and columns; 4 must divide them",
                       vision.head_dim());
    if (vision.small_copy_id == 0)
      throw_user_error(
          "config.json: image_token_index is not boi_token_index + 12, as in Llama 4's tokenizer, so that "
          "the ids of what separates tiles are not known");
    const TowerReader reader(source, type, {"vision_model.", "model.vision_model."}, "class_embedding");
    patches_ = reader.whole("patch_embedding.linear", hidden,
                            {std::uint64_t{3} * vision.patch_size * vision.patch_size}, false);
    class_ = reader.tensor("class_embedding", {hidden});
    positions_ = reader.tensor("positional_embedding_vlm", {vision.position_embeddings, hidden});
    norm_before_ = reader.norm("layernorm_pre", hidden, vision.norm_eps);
    norm_behind_ = reader.norm("layernorm_post", hidden, vision.norm_eps);
    const VitNames names{.layers = "model.layers.",
                         .norm1 = "input_layernorm",
                         .norm2 = "post_attention_layernorm",
                         .q = "self_attn.q_proj",
                         .k = "self_attn.k_proj",
                         .v = "self_attn.v_proj",
                         .out = "self_attn.o_proj",
                         .fc1 = "mlp.fc1",
                         .fc2 = "mlp.fc2"};
    layers_ = std::make_unique<const VitLayers>(vision, names, reader, ranks);
    adapter_ =
        reader.mlp({"vision_adapter.mlp.fc1"}, "vision_adapter.mlp.fc2",
                   {vision.projector_input, vision.projector_hidden, vision.second_projector}, false, ranks);
    const TowerReader projector(source, type, {"multi_modal_projector.", "model.multi_modal_projector."},
                                "linear_1.weight");
    projection_ = projector.whole("linear_1", vision.out_hidden_size, {vision.second_projector}, false);
    make_angles();
  }

  void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks, float* out) override {
    const std::uint32_t hidden = vision_.hidden_size;
    const std::uint32_t patches = side_ * side_;
    const std::uint32_t length = patches + 1;
    const std::uint32_t tiles = layout.tiles;
    std::vector<float> embedded(std::size_t{tiles} * patches * hidden);
    patches_.forward(square_patches(pixels, vision_.patch_size).data(), tiles * patches, embedded.data(),
                     ranks.pool());
    std::vector<float> x(std::size_t{tiles} * length * hidden);
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
      float* const to = x.data() + std::size_t{tile} * length * hidden;
      const std::size_t own = std::size_t{patches} * hidden;
      std::copy_n(embedded.data() + tile * own, own, to);
      std::copy(class_.begin(), class_.end(), to + own);
      add(to, positions_.data(), positions_.size());
    }
    norm_before_.apply(x.data(), tiles * length, x.data(), ranks.pool());
    layers_->forward(
        x.data(), tiles, length, [&](std::uint32_t row, float* head) { turn(row, head); }, ranks);
    norm_behind_.apply(x.data(), tiles * length, x.data(), ranks.pool());
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {  // without the class tokens
      std::copy_n(x.data() + std::size_t{tile} * length * hidden, std::size_t{patches} * hidden,
                  embedded.data() + std::size_t{tile} * patches * hidden);
    }
    const std::vector<float> squares =
        merge_squares(embedded.data(), tiles, side_, vision_.merge_size, hidden, false);
    std::vector<float> adapted(std::size_t{layout.embedded} * vision_.second_projector);
    adapter_.forward(squares.data(), layout.embedded, ranks, adapted.data());
    activate(TowerActivation::kGelu, adapted.data(), adapted.size());
    projection_.forward(adapted.data(), layout.embedded, out, ranks.pool());
  }

  // Tiles row by row, <|tile_x_separator|> between two of a row, <|tile_y_separator|> after a row; <|image|>
  // and the small copy.
  std::vector<std::uint32_t> image_tokens(const ImageLayout& layout) const override {
    const std::uint32_t of_tile = layout.embedded / layout.tiles;
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t tile = 0; tile + 1 < layout.tiles; ++tile) {
      tokens.insert(tokens.end(), of_tile, kEmbedded);
      const bool last_of_row = (tile + 1) % layout.grid_columns == 0;
      tokens.push_back(last_of_row ? vision_.tile_row_id : vision_.tile_column_id);
    }
    tokens.push_back(vision_.small_copy_id);
    tokens.insert(tokens.end(), of_tile, kEmbedded);
    return tokens;
  }

 private:
  // Of each patch: pairs of a head turn by its column, then as many by its row, both counted from 1.
  void make_angles() {
    const std::uint32_t each = vision_.head_dim() / 4;
    for (std::uint32_t patch = 0; patch < side_ * side_; ++patch) {
      for (const std::uint32_t place : {patch % side_, patch / side_}) {
        for (std::uint32_t i = 0; i < each; ++i) {
          const double angle = (place + 1) / std::pow(vision_.rope_theta, double(i) / each);
          cos_.push_back(static_cast<float>(std::cos(angle)));
          sin_.push_back(static_cast<float>(std::sin(angle)));
        }
      }
    }
  }

  void turn(std::uint32_t row, float* head) const {
    if (row == side_ * side_) return;  // the class token
    const std::uint32_t pairs = vision_.head_dim() / 2;
    const std::size_t at = std::size_t{row} * pairs;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      const float a = head[2 * i];
      const float b = head[2 * i + 1];
      head[2 * i] = a * cos_[at + i] - b * sin_[at + i];
      head[2 * i + 1] = a * sin_[at + i] + b * cos_[at + i];
    }
  }

  const VisionConfig vision_;
  const std::uint32_t side_;
  TowerLinear patches_, projection_;
  std::vector<float> class_, positions_, cos_, sin_;
  TowerNorm norm_before_, norm_behind_;
  std::unique_ptr<const VitLayers> layers_;
  TowerMlp adapter_;
};

}  // namespace

extern const TowerFamily kLlama4Tower;
const TowerFamily kLlama4Tower = {{"Llama4ForConditionalGeneration"}, load_tower<Llama4Tower>};

}  // namespace tpsim::rank
