// InternVL: tiles with a class token before their patches, layers that scale what they add, squares of
// patches shuffled into wider rows, and a projector of a norm and two layers that no rank shares. Names of
// OpenGVLab's own checkpoints (SGLang 0.5.23 models/internvl.py) and of those in Transformers' spelling.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

struct Spelling {
  std::vector<std::string_view> prefixes;
  std::string class_token, positions, patches;
  VitNames layers;
  std::vector<std::string_view> projector_prefixes;
  std::string projector_norm, linear1, linear2;
};

const Spelling& own_spelling() {
  static const Spelling kOwn = {.prefixes = {"vision_model.", "model.vision_model."},
                                .class_token = "embeddings.class_embedding",
                                .positions = "embeddings.position_embedding",
                                .patches = "embeddings.patch_embedding",
                                .layers = {.layers = "encoder.layers.",
                                           .norm1 = "norm1",
                                           .norm2 = "norm2",
                                           .qkv = "attn.qkv",
                                           .out = "attn.proj",
                                           .fc1 = "mlp.fc1",
                                           .fc2 = "mlp.fc2",
                                           .scale1 = "ls1",
                                           .scale2 = "ls2",
                                           .q_norm = "attn.q_norm.weight",
                                           .k_norm = "attn.k_norm.weight"},
                                .projector_prefixes = {"mlp1.", "model.mlp1."},
                                .projector_norm = "0",
                                .linear1 = "1",
                                .linear2 = "3"};
  return kOwn;
}

const Spelling& transformers_spelling() {
  static const Spelling kTransformers = {
      .prefixes = {"vision_tower.", "model.vision_tower."},
      .class_token = "embeddings.cls_token",
      .positions = "embeddings.position_embeddings",
      .patches = "embeddings.patch_embeddings.projection",
      .layers = {.layers = "encoder.layer.",
                 .norm1 = "layernorm_before",
                 .norm2 = "layernorm_after",
                 .q = "attention.q_proj",
                 .k = "attention.k_proj",
                 .v = "attention.v_proj",
                 .out = "attention.projection_layer",
                 .fc1 = "mlp.fc1",
                 .fc2 = "mlp.fc2",
                 .scale1 = "lambda_1",
                 .scale2 = "lambda_2",
                 .q_norm = "attention.q_norm.weight",
                 .k_norm = "attention.k_norm.weight"},
      .projector_prefixes = {"multi_modal_projector.", "model.multi_modal_projector."},
      .projector_norm = "layer_norm",
      .linear1 = "linear_1",
      .linear2 = "linear_2"};
  return kTransformers;
}

class InternVlTower : public VisionTower {
 public:
  InternVlTower(const Spelling& spelling, const VisionConfig& vision, const TensorSource& source,
                WeightType type, const TowerRanks& ranks)
      : vision_(vision), side_(vision.image_size / vision.patch_size) {
    const std::uint32_t hidden = vision.hidden_size;
    const TowerReader reader(source, type, spelling.prefixes, spelling.class_token);
    class_ = reader.tensor(spelling.class_token, {1, 1, hidden});
    positions_ = reader.tensor(spelling.positions, {1, vision.position_embeddings, hidden});
    patches_ = reader.whole(spelling.patches, hidden, {3, vision.patch_size, vision.patch_size}, true);
    VitNames names = spelling.layers;
    if (!vision.qk_norm) names.q_norm = names.k_norm = "";
    layers_ = std::make_unique<const VitLayers>(vision, names, reader, ranks);
    const TowerReader projector(source, type, spelling.projector_prefixes, spelling.linear1 + ".weight");
    norm_ = projector.norm(spelling.projector_norm, vision.projector_input, 1e-5F);
    const std::uint32_t out = vision.out_hidden_size;
    linear1_ = projector.whole(spelling.linear1, out, {vision.projector_input}, true);
    linear2_ = projector.whole(spelling.linear2, out, {out}, true);
  }

  void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks, float* out) override {
    const std::uint32_t hidden = vision_.hidden_size;
    const std::uint32_t patches = side_ * side_;
    const std::uint32_t length = patches + 1;
    const std::uint32_t tiles = layout.tiles;
    const std::size_t own = std::size_t{patches} * hidden;
    std::vector<float> embedded(tiles * own);
    patches_.forward(square_patches(pixels, vision_.patch_size).data(), tiles * patches, embedded.data(),
                     ranks.pool());
    std::vector<float> x(std::size_t{tiles} * length * hidden);
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
      float* const to = x.data() + std::size_t{tile} * length * hidden;
      std::copy(class_.begin(), class_.end(), to);
      std::copy_n(embedded.data() + tile * own, own, to + hidden);
      add(to, positions_.data(), positions_.size());
    }
    layers_->forward(x.data(), tiles, length, {}, ranks);
    for (std::uint32_t tile = 0; tile < tiles; ++tile)  // without the class tokens
      std::copy_n(x.data() + (std::size_t{tile} * length + 1) * hidden, own, embedded.data() + tile * own);

    std::vector<float> squares =
        merge_squares(embedded.data(), tiles, side_, vision_.merge_size, hidden, vision_.transposed_shuffle);
    norm_.apply(squares.data(), layout.embedded, squares.data(), ranks.pool());
    std::vector<float> inner(std::size_t{layout.embedded} * vision_.out_hidden_size);
    linear1_.forward(squares.data(), layout.embedded, inner.data(), ranks.pool());
    activate(TowerActivation::kGelu, inner.data(), inner.size());
    linear2_.forward(inner.data(), layout.embedded, out, ranks.pool());
  }

 private:
  const VisionConfig vision_;
  const std::uint32_t side_;
  TowerLinear patches_, linear1_, linear2_;
  std::vector<float> class_, positions_;
  TowerNorm norm_;
  std::unique_ptr<const VitLayers> layers_;
};

std::unique_ptr<VisionTower> load_internvl(const VisionConfig& vision, const TensorSource& source,
                                           WeightType type, const TowerRanks& ranks) {
  // Dummy weights have every name.
  const bool own = source.has("vision_model.embeddings.class_embedding") ||
                   source.has("model.vision_model.embeddings.class_embedding");
  return std::make_unique<InternVlTower>(own ? own_spelling() : transformers_spelling(), vision, source, type,
                                         ranks);
}

}  // namespace

extern const TowerFamily kInternVlTower;
const TowerFamily kInternVlTower = {{"InternVLChatModel", "InternVLForConditionalGeneration"}, load_internvl};

}  // namespace tpsim::rank
