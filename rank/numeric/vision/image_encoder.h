// The vision encoder of a numeric deployment: a tower, loaded when the first image comes, and the ranks that
// compute with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rank/config/image_layout.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/vision/tower.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class ImageEncoder {
 public:
  using OpenWeights = std::function<std::unique_ptr<TensorSource>()>;
  // `open`: called once, with the first image. Throws UserError where the model's images are not computed.
  // REQUIRES: model.vision.served; `collectives` and `pool` outlive this.
  ImageEncoder(const ModelConfig& model, const ParallelLayout& layout, WeightType type, OpenWeights open,
               Collectives& collectives, ThreadPool& pool);

  const VisionConfig& vision() const { return vision_; }
  // Elements of a row that encode() makes.
  std::size_t row_size() const { return std::size_t{vision_.out_hidden_size} * (1 + vision_.deepstack); }
  // VisionTower::image_tokens().
  std::vector<std::uint32_t> image_tokens(const ImageLayout& layout);
  // [layout.embedded, row_size()], the same in every process; all must call it. `dp_rank`, `index`:
  // TowerRanks::begin_image(). Throws UserError for weights that are missing or too large for the memory.
  std::vector<float> encode(const ImageLayout& layout, std::uint64_t seed, std::uint32_t dp_rank,
                            std::uint32_t index);

 private:
  VisionTower& tower();

  const VisionConfig vision_;
  const std::string model_name_;
  const TowerFamily& family_;
  const WeightType type_;
  const OpenWeights open_;
  const std::uint32_t local_ranks_;
  TowerRanks ranks_;
  std::unique_ptr<VisionTower> tower_;
};

}  // namespace tpsim::rank
