// A pool for tests, whose pages some sequences hold in random order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "attention/layer_shape.h"
#include "kvcache/storage/kv_store.h"

namespace tpsim::testing {

class PagedPool {
 public:
  // Sequences of these many tokens; `spare` pages are nobody's. Keys and values are fp32, as `shape` has
  // them.
  PagedPool(std::span<const std::uint32_t> lengths, const attention::LayerShape& shape,
            std::uint32_t page_size, std::mt19937_64& random, std::uint32_t num_layers = 1,
            std::uint32_t spare = 0)
      : page_size_(page_size) {
    std::uint32_t pages = spare;
    for (const std::uint32_t length : lengths) pages += (length + page_size - 1) / page_size;
    std::vector<std::uint32_t> order(pages);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::uint32_t length : lengths) {
      const std::uint32_t count = (length + page_size - 1) / page_size;
      tables_.emplace_back(order.rbegin(), order.rbegin() + count);
      order.resize(order.size() - count);
    }
    for (const auto& table : tables_) views_.emplace_back(table);
    kvcache::KvStoreConfig config;
    config.format = NumberFormat::kFp32;
    config.num_layers = num_layers;
    config.num_pages = pages;
    config.page_size = page_size;
    config.num_kv_heads = shape.num_kv_heads;
    config.k_dim = shape.head_dim;
    config.v_dim = shape.v_head_dim;
    config.tag_pages = true;
    store_ = std::make_unique<kvcache::KvStore>(config);
  }

  const kvcache::KvStore& store() const { return *store_; }
  std::span<const std::span<const std::uint32_t>> page_tables() const { return views_; }
  // Keys and values [heads, dim] of one token.
  void store(std::uint32_t layer, std::size_t sequence, std::uint32_t token, const float* key,
             const float* value) {
    store_->store(layer, tables_[sequence][token / page_size_] * page_size_ + token % page_size_, key, value);
  }

 private:
  std::uint32_t page_size_;
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<std::span<const std::uint32_t>> views_;
  std::unique_ptr<kvcache::KvStore> store_;
};

// Tokens of each sequence: what is cached and what is new.
inline std::vector<std::uint32_t> lengths_of(std::span<const std::uint32_t> prefixes,
                                             std::span<const std::uint32_t> q_lens) {
  std::vector<std::uint32_t> lengths(prefixes.begin(), prefixes.end());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] += q_lens[i];
  return lengths;
}

}  // namespace tpsim::testing
