// The vision encoders of numeric execution: one file a family (qwen2_5_vl.cc, …), one list
// (image_encoder.cc).
//
// A tower stands for the encoder and its projector in all ranks of one process. It keeps their shards of the
// weights and computes one image after the other, in lockstep with the towers of other processes: after every
// row-parallel layer they meet in TowerRanks::reduce(). What it computes are the rows that take the place of
// the image tokens' embeddings.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "rank/config/image_layout.h"
#include "rank/config/vision_config.h"
#include "rank/linear/packed_matrix.h"
#include "rank/numeric/vision/patches.h"
#include "rank/numeric/vision/tower_ranks.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class VisionTower {
 public:
  virtual ~VisionTower() = default;

  // `out` receives [layout.embedded, out_hidden_size * (1 + deepstack)], in the order of the image's tokens:
  // the embedding, then what the first text layers add to it. Called where ranks.begin_image() says so, also
  // with no active shard: every process then computes what is the same on all ranks, and takes part in the
  // sums.
  virtual void encode(const ImageLayout& layout, const ImagePixels& pixels, TowerRanks& ranks,
                      float* out) = 0;

  // What the tokens of an image are, `layout.tokens` of them: entry i is kEmbedded, the next row that
  // encode() made, or the id of a token of the vocabulary (a separator of tiles). Without separators: all
  // kEmbedded.
  static constexpr std::uint32_t kEmbedded = ~0U;
  virtual std::vector<std::uint32_t> image_tokens(const ImageLayout& layout) const {
    return std::vector<std::uint32_t>(layout.tokens, kEmbedded);
  }
};

struct TowerFamily {
  // Of config.json.
  std::vector<std::string_view> architectures;
  // Loads the shards ranks.shards() of `vision`. Throws UserError where a tensor is missing or misshaped, or
  // the config asks for what is not computed.
  std::unique_ptr<VisionTower> (*load)(const VisionConfig& vision, const TensorSource& source,
                                       WeightType type, const TowerRanks& ranks);
};
// TowerFamily::load of a class with such a constructor.
template <typename Tower>
std::unique_ptr<VisionTower> load_tower(const VisionConfig& vision, const TensorSource& source,
                                        WeightType type, const TowerRanks& ranks) {
  return std::make_unique<Tower>(vision, source, type, ranks);
}

// The family of an architecture, or null: its images are not computed. A new family is a file that defines
// its TowerFamily and a line in image_encoder.cc.
const TowerFamily* find_vision_tower(std::string_view architecture);

}  // namespace tpsim::rank
