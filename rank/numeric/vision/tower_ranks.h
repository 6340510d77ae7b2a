// The ranks that compute an image together, as a tower sees them.
//
// Cut over the ranks (the default): every rank of the image's data-parallel rank has a shard of each layer,
// and its sums are added up in rank order, so that the bits do not depend on how ranks are spread over
// processes. With --mm-enable-dp-encoder one rank computes the image alone with whole weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/linear/thread_pool.h"
#include "rank/model/parallel_layout.h"
#include "rank/numeric/collectives.h"

namespace tpsim::rank {

class TowerRanks {
 public:
  // `replicated`: whole weights, --mm-enable-dp-encoder.
  TowerRanks(const ParallelLayout& layout, bool replicated, Collectives& collectives, ThreadPool& pool);

  // The shards whose weights this process keeps, each a part `rank` of `size`; a tower keeps an entry for
  // each. Replicated: one, the whole.
  std::span<const Split> shards() const { return shards_; }
  // Of those, by index, the ones that compute the present image.
  std::span<const std::uint32_t> active() const { return active_; }

  // Scratch for the part of the result that shard i makes, of `count` elements, not cleared.
  std::vector<float>& part(std::uint32_t shard, std::size_t count);
  // out[count] = the parts of all ranks that compute the image, in rank order. Every active shard has filled
  // part(i, count).
  void reduce(std::uint64_t count, float* out);

  ThreadPool& pool() const { return pool_; }

  // The next image: of data-parallel rank `dp_rank`, the `index`-th of all images that a pass encodes for it
  // (which decides whose it is where ranks share the images).
  void begin_image(std::uint32_t dp_rank, std::uint32_t index);
  // Whether reduce() meets other ranks, so that all processes must encode the image.
  bool meets_others() const { return !replicated_; }
  // out[count] = the image's embeddings in every process: those of the process that has them. `mine`: null
  // where this process did not encode the image.
  void share(const float* mine, std::uint64_t count, float* out);

 private:
  const ParallelLayout layout_;
  const bool replicated_;
  Collectives& collectives_;
  ThreadPool& pool_;
  std::vector<Split> shards_;
  std::vector<std::uint32_t> active_;
  std::vector<std::vector<float>> parts_;  // per shard
  std::vector<float> zeros_;
  std::vector<const float*> views_;
};

// The part of `count` equal things, heads or columns, that a shard has. Throws std::invalid_argument where
// they cannot be cut.
struct Share {
  std::uint32_t first = 0, count = 0;
};
Share share_of(std::uint32_t count, const Split& split);

}  // namespace tpsim::rank
