// Gemma 3: SigLIP over a square of fixed size, its patches averaged in squares, normed and projected. Of
// SGLang 0.5.23 models/gemma3_mm.py and siglip.py, which replaces the config's hidden_act (a tanh GELU) by a
// quick GELU; here it is what the config says, as in Transformers.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower.h"
#include "rank/numeric/vision/tower_layers.h"

namespace tpsim::rank {
namespace {

class Gemma3Tower : public VisionTower {
 public:
  Gemma3Tower(const VisionConfig& vision, const TensorSource& source, WeightType type,
              const TowerRanks& ranks)
      : vision_(vision) {
    const std::uint32_t hidden = vision.hidden_size;
    const std::uint32_t side = vision.patch_size;
    const TowerReader reader(source, type,
                             {"vision_tower.vision_model.", "vision_tower.",
                              "model.vision_tower.vision_model.", "model.vision_tower."},
                             "embeddings.patch_embedding.weight");
    patches_ = reader.whole("embeddings.patch_embedding", hidden, {3, side, side}, true);
    positions_ = reader.tensor("embeddings.position_embedding.weight", {vision.position_embeddings, hidden});
    const VitNames names{.layers = "encoder.layers.",
                         .norm1 = "layer_norm1",
                         .norm2 = "layer_norm2",
                         .q = "self_attn.q_proj",
                         .k = "self_attn.k_proj",
                         .v = "self_attn.v_proj",
                         .out = "self_attn.out_proj",
                         .fc1 = "mlp.fc1",
                         .fc2 = "mlp.fc2"};
    layers_ = std::make_unique<const VitLayers>(vision, names, reader, ranks);
    norm_ = reader.norm("post_layernorm", hidden, vision.norm_eps);
    const TowerReader projector(source, type, {"multi_modal_projector.", "model.multi_modal_projector."},
                                "mm_soft_emb_norm.weight");
    soft_norm_ = projector.tensor("mm_soft_emb_norm.weight", {hidden});
    const std::uint32_t out = vision.out_hidden_size;
    const std::vector<float> stored = projector.tensor("mm_input_projection_weight", {hidden, out});
    projection_ = PackedMatrix(type, out, hidden, [&](std::uint32_t output, float* row) {
      for (std::uint32_t i = 0; i < hidden; ++i) row[i] = stored[std::size_t{i} * out + output];
    });
  }

  void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks, float* out) override {
    const std::uint32_t hidden = vision_.hidden_size;
    const std::uint32_t side = vision_.image_size / vision_.patch_size;
    const std::uint32_t rows = side * side;
    std::vector<float> x(std::size_t{rows} * hidden);
    patches_.forward(square_patches(pixels, vision_.patch_size).data(), rows, x.data(), ranks.pool());
    add(x.data(), positions_.data(), x.size());
    layers_->forward(x.data(), 1, rows, {}, ranks);
    norm_.apply(x.data(), rows, x.data(), ranks.pool());

    const std::uint32_t merge = vision_.merge_size;
    const std::vector<float> squares = merge_squares(x.data(), 1, side, merge, hidden, false);
    std::vector<float> pooled(std::size_t{layout.embedded} * hidden);
    const auto share = 1.0F / static_cast<float>(merge * merge);
    for (std::uint32_t token = 0; token < layout.embedded; ++token) {
      float* const mean = pooled.data() + std::size_t{token} * hidden;
      for (std::uint32_t patch = 0; patch < merge * merge; ++patch)
        add(mean, squares.data() + (std::size_t{token} * merge * merge + patch) * hidden, hidden);
      scale(mean, hidden, share);
      rms_norm(mean, hidden, soft_norm_.data(), 1, vision_.norm_eps, mean);
    }
    projection_.multiply(pooled.data(), layout.embedded, out, ranks.pool());
  }

 private:
  const VisionConfig vision_;
  TowerLinear patches_;
  std::vector<float> positions_, soft_norm_;
  std::unique_ptr<const VitLayers> layers_;
  TowerNorm norm_;
  PackedMatrix projection_;
};

}  // namespace

extern const TowerFamily kGemma3Tower;
const TowerFamily kGemma3Tower = {{"Gemma3ForConditionalGeneration"}, load_tower<Gemma3Tower>};

}  // namespace tpsim::rank
