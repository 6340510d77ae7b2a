// Source: arXiv 2103.00020; names of tensors as Transformers 5.24 has them (models/clip).
#include "rank/numeric/diffusion/image_embedder.h"

#include <string>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser_layers.h"

namespace tpsim::rank {

ImageEmbedder::ImageEmbedder(const ConfigReader& config, const TensorSource& source)
    : layers_(config, {.width = 768, .heads = 12, .ffn = 3072, .layers = 12}),
      side_(config.number_or("image_size", 224)),
      patch_(config.number_or("patch_size", 32)) {
  if (const std::string kind = config.text("model_type", ""); kind != "clip_vision_model")
    throw_user_error(
        "{}: key \"model_type\" is {}, which is not computed; of image encoders clip_vision_model is",
        config.where(), kind.empty() ? "missing" : kind);
  if (side_ % patch_ != 0 || config.number_or("num_channels", 3) != 3)
    throw_user_error("{}: keys \"image_size\" and \"num_channels\" must be a multiple of patch_size and 3",
                     config.where());
  const std::uint32_t width = layers_.width(), across = side_ / patch_;
  const TowerReader reader(source, WeightType::kFp32, {"vision_model.", ""}, "embeddings.class_embedding");
  class_ = reader.tensor("embeddings.class_embedding", {width});
  patches_ = reader.whole("embeddings.patch_embedding", width, {3, patch_, patch_}, /*bias=*/false);
  places_ =
      reader.tensor("embeddings.position_embedding.weight", {std::uint64_t{across} * across + 1, width});
  norm_ = reader.norm("pre_layrnorm", width, layers_.eps());  // as Transformers spells it
  layers_.read(reader, layers_.layers() - 1);
}

std::vector<float> ImageEmbedder::rows(std::span<const float> pixels, ThreadPool& pool) const {
  const std::uint32_t across = side_ / patch_;
  std::vector<float> patches;
  for_patches({3, 1, side_, side_}, {1, patch_, patch_}, {1, across, across}, {0, across * across},
              [&](std::uint32_t, std::uint32_t, std::size_t at) { patches.push_back(pixels[at]); });
  std::vector<float> x = class_;
  const std::vector<float> embedded = product(patches_, patches, pool);
  x.insert(x.end(), embedded.begin(), embedded.end());
  add(x.data(), places_.data(), x.size());
  norm_.apply(x.data(), across * across + 1, x.data(), pool);
  layers_.forward(x, /*causal=*/false, pool);
  return x;
}

}  // namespace tpsim::rank
