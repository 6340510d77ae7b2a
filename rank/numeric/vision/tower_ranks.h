// The ranks that compute an image together, as a tower sees them.
//
// Cut over the ranks (the default): every rank of the image's data-parallel rank has a shard of each layer,
// and their parts are added up in rank order, so that the bits do not depend on how ranks are spread over
// processes. Replicated (--mm-enable-dp-encoder): one rank computes the image alone with whole weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/shard.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"

namespace tpsim::rank {

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

}  // namespace tpsim::rank
