#include "rank/vision/embedding_cache.h"

namespace tpsim::rank {

bool EmbeddingCache::use(std::uint64_t content) {
  const auto found = entries_.find(content);
  if (found == entries_.end()) return false;
  order_.splice(order_.begin(), order_, found->second);
  return true;
}

std::vector<std::uint64_t> EmbeddingCache::keep(std::uint64_t content, std::uint64_t bytes) {
  std::vector<std::uint64_t> gone;
  if (bytes > capacity_) return gone;
  while (bytes_ + bytes > capacity_) {
    gone.push_back(order_.back().content);
    bytes_ -= order_.back().bytes;
    entries_.erase(order_.back().content);
    order_.pop_back();
  }
  order_.push_front({content, bytes});
  entries_.emplace(content, order_.begin());
  bytes_ += bytes;
  return gone;
}

}  // namespace tpsim::rank
