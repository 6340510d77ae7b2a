// The embeddings of images that a rank keeps: SGLang's MultiModalStaticCache (0.5.23
// mem_cache/multimodal_cache.py) under SGLANG_VLM_CACHE_SIZE_MB. Least recently used first; what is larger
// than the cache is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

namespace tpsim::rank {

class EmbeddingCache {
 public:
  explicit EmbeddingCache(std::uint64_t bytes) : capacity_(bytes) {}

  // Whether `content` is there; it was then used last.
  bool use(std::uint64_t content) {
    const auto found = entries_.find(content);
    if (found == entries_.end()) return false;
    order_.splice(order_.begin(), order_, found->second);
    return true;
  }
  // Returns what had to go for it. REQUIRES: !use(content).
  std::vector<std::uint64_t> keep(std::uint64_t content, std::uint64_t bytes) {
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

  std::uint64_t bytes() const { return bytes_; }
  std::size_t size() const { return entries_.size(); }

  template <typename Archive>
  void serialize(Archive& archive) {
    std::vector<Entry> entries(order_.begin(), order_.end());
    archive(bytes_, entries);
    if constexpr (Archive::kReads) {
      order_.assign(entries.begin(), entries.end());
      entries_.clear();
      for (auto entry = order_.begin(); entry != order_.end(); ++entry)
        entries_.emplace(entry->content, entry);
    }
  }

 private:
  struct Entry {
    std::uint64_t content = 0;
    std::uint64_t bytes = 0;
  };
  std::uint64_t capacity_;
  std::uint64_t bytes_ = 0;
  std::list<Entry> order_;  // used last in front
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> entries_;
};

}  // namespace tpsim::rank
