#include "rank/numeric/vision/image_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proto/base/error.h"
#include "rank/numeric/vision/patches.h"
#include "rank/vision/vision_encoder.h"
#include "rank/weights/host_memory.h"

namespace tpsim::rank {

extern const TowerFamily kGemma3Tower;
extern const TowerFamily kInternVlTower;
extern const TowerFamily kLlama4Tower;
extern const TowerFamily kQwen25VlTower;
extern const TowerFamily kQwen3VlTower;

const TowerFamily* find_vision_tower(std::string_view architecture) {
  for (const TowerFamily* family :
       {&kGemma3Tower, &kInternVlTower, &kLlama4Tower, &kQwen25VlTower, &kQwen3VlTower}) {
    if (std::ranges::count(family->architectures, architecture) > 0) return family;
  }
  return nullptr;
}

namespace {

const TowerFamily& family_of(const ModelConfig& model) {
  const TowerFamily* const family = find_vision_tower(model.vision.architecture);
  if (family == nullptr)
    throw_user_error(
        "--executor numeric: images of {} ({}) are priced and not computed; use --executor modeled",
        model.name, model.architecture);
  return *family;
}

}  // namespace

ImageEncoder::ImageEncoder(const ModelConfig& model, const ParallelLayout& layout, WeightType type,
                           OpenWeights open, Collectives& collectives, ThreadPool& pool)
    : vision_(model.vision),
      model_name_(model.name),
      family_(family_of(model)),
      type_(type),
      open_(std::move(open)),
      local_ranks_(collectives.num_ranks()),
      ranks_(layout, vision_.replicated, collectives, pool) {}

VisionTower& ImageEncoder::tower() {
  if (tower_ != nullptr) return *tower_;
  const VisionSharing sharing{.ranks = ranks_.shards().front().size, .data_parallel = vision_.replicated};
  const std::uint64_t bytes = vision_weight_bytes(vision_, sharing) * ranks_.shards().size();
  check_host_memory(type_ == WeightType::kBf16 ? bytes : 2 * bytes,
                    fmt::format("the vision encoder of {} on {} ranks", model_name_, local_ranks_));
  tower_ = family_.load(vision_, *open_(), type_, ranks_);
  return *tower_;
}

std::vector<std::uint32_t> ImageEncoder::image_tokens(const ImageLayout& layout) {
  return tower().image_tokens(layout);
}

std::vector<float> ImageEncoder::encode(const ImageLayout& layout, std::uint64_t seed, std::uint32_t dp_rank,
                                        std::uint32_t index) {
  VisionTower& of_all = tower();
  std::vector<float> rows(layout.embedded * row_size());
  if (ranks_.begin_image(dp_rank, index))
    of_all.encode(layout, make_pixels(layout, seed), ranks_, rows.data());
  ranks_.share(rows.size(), rows.data());
  return rows;
}

}  // namespace tpsim::rank
