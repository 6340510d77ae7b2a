// The vision encoders of numeric execution: one file a family (qwen2_5_vl.cc, …), one list
// (image_encoder.cc).
//
// A tower stands for the encoder and its projector in all ranks of one process. It keeps their shards of the
// weights and computes one image after the other, in lockstep with the towers of other processes: after every
// row-parallel layer they meet in TowerRanks::reduce(). What it computes are the rows that take the place of
// the image tokens' embeddings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rank/config/image_layout.h"
#include "rank/config/shard.h"
#include "rank/config/vision_config.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/vision/patches.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// The ranks that compute an image together, as a tower sees them.
//
// Cut over the ranks (the default): every rank of the image's data-parallel rank has a shard of each layer,
// and their parts are added up in rank order, so that the bits do not depend on how ranks are spread over
// processes. Replicated (--mm-enable-dp-encoder): one rank computes the image alone with whole weights.
class TowerRanks {
 public:
  // `layout`: tp_size is that of the collectives. REQUIRES: `collectives` and `pool` outlive this.
  TowerRanks(const ParallelLayout& layout, bool replicated, Collectives& collectives, ThreadPool& pool);

  // The shards whose weights this process keeps: a tower keeps an entry for each. Replicated: one, the whole.
  std::span<const Split> shards() const { return shards_; }
  // Of those, by index, the ones that compute the present image.
  std::span<const std::uint32_t> active() const { return active_; }
  ThreadPool& pool() const { return pool_; }

  // Scratch for what shard i, an active one, adds to a result of `count` elements; not cleared.
  std::vector<float>& part(std::uint32_t shard, std::size_t count);
  // out[count] = the sum of the parts of all ranks that compute the image. REQUIRES: every active shard has
  // filled part(i, count).
  void reduce(std::size_t count, float* out);

  // The next image: of data-parallel rank `dp_rank`, the `index`-th of those that a pass encodes for it,
  // which decides whose it is where ranks share the images. Whether this process must call
  // VisionTower::encode(): all do where they meet in reduce(), though they may have no active shard.
  bool begin_image(std::uint32_t dp_rank, std::uint32_t index);
  // Embeddings [count] of the image, the same in every process: `out` holds them already where this process
  // encoded it.
  void share(std::size_t count, float* out);

 private:
  const ParallelLayout layout_;
  const bool replicated_;
  Collectives& collectives_;
  ThreadPool& pool_;
  std::vector<Split> shards_;
  std::uint32_t dp_rank_ = 0;
  std::uint32_t owner_ = 0;  // replicated: the rank that computes the image
  std::vector<std::uint32_t> active_;
  std::vector<std::vector<float>> parts_;  // per shard
  std::vector<float> zeros_, sum_;
  std::vector<const float*> views_;
};

// The part of `count` heads or columns that a shard has; the last shards' may reach beyond `count` where it
// is not divisible (TowerReader fills up with zeros).
struct Share {
  std::uint32_t first = 0, count = 0;
};
Share share_of(std::uint32_t count, const Split& split);

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
