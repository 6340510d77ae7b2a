#include "kvcache/storage/kv_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>

#include "proto/base/error.h"

namespace tpsim::kvcache {
namespace {

constexpr std::uint32_t kNowhere = UINT32_MAX;

// Zero pages of the kernel's: a pool costs nothing until it is written.
std::shared_ptr<std::uint8_t> map_zeros(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  void* const at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw_user_error("--max-total-tokens: {} bytes of KV cache cannot be had; ask for fewer tokens", bytes);
  }
  return {static_cast<std::uint8_t*>(at), [bytes](std::uint8_t* data) { munmap(data, bytes); }};
}

KvHeads heads_of(const KvStoreConfig& config, std::uint32_t layer) {
  return config.layers.empty() ? KvHeads{config.num_kv_heads, config.k_dim, config.v_dim}
                               : config.layers[layer];
}

}  // namespace

KvStore::KvStore(const KvStoreConfig& config) : config_(config), memory_(map_zeros(bytes())) {
  if (!config.layers.empty() && config.layers.size() != config.num_layers)
    throw std::invalid_argument("KvStore: layers needs an entry for every layer");
  std::uint64_t begin = 0;
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    Layer& layer = layers_.emplace_back(Layer{heads_of(config, i)});
    layer.key_bytes = stored_bytes(config.format, layer.k_dim);
    layer.value_bytes = config.value_in_key ? 0 : stored_bytes(config.format, layer.v_dim);
    layer.page_bytes = (layer.key_bytes + layer.value_bytes) * config.page_size * layer.num_kv_heads;
    layer.begin = begin;
    begin += layer.page_bytes * config.num_pages;
  }
  if (config.page_size == 0 ||
      (config.value_in_key && (config.num_kv_heads != 1 || config.v_dim > config.k_dim)))
    throw std::invalid_argument("KvStore: page size 0, or a value that is not part of one key");
  if (!config.windowed.empty() && config.windowed.size() != config.num_layers)
    throw std::invalid_argument("KvStore: windowed needs an entry for every layer");
  has_windows_ = std::find(config.windowed.begin(), config.windowed.end(), true) != config.windowed.end();
  if (has_windows_) place_of_.assign(config.num_pages, kNowhere);
  if (config.tag_pages)
    written_.assign(std::size_t{config.num_layers} * config.num_pages * config.page_size, 0);
}

std::uint64_t KvStore::bytes_per_token(const KvStoreConfig& config) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    const KvHeads heads = heads_of(config, i);
    const std::uint64_t value = config.value_in_key ? 0 : stored_bytes(config.format, heads.v_dim);
    bytes += (stored_bytes(config.format, heads.k_dim) + value) * heads.num_kv_heads;
  }
  return bytes;
}

// [layer][page or its place][keys then values][head][token][dim]
std::uint8_t* KvStore::page_at(std::uint32_t layer, std::uint32_t page) const {
  std::uint64_t place = page;
  if (has_windows_ && config_.windowed[layer]) {
    place = place_of_[page];
    if (place == kNowhere) {
      throw UnwrittenRead(
          fmt::format("layer {}: page {} is used, but its window has let go of it", layer, page));
    }
  }
  return memory_.get() + layers_[layer].begin + place * layers_[layer].page_bytes;
}

std::uint8_t* KvStore::key_at(std::uint32_t layer, std::uint32_t slot, std::uint32_t head) const {
  const Layer& of = layers_[layer];
  return page_at(layer, slot / config_.page_size) +
         (std::uint64_t{head} * config_.page_size + slot % config_.page_size) * of.key_bytes;
}

std::uint8_t* KvStore::value_at(std::uint32_t layer, std::uint32_t slot, std::uint32_t head) const {
  const Layer& of = layers_[layer];
  return page_at(layer, slot / config_.page_size) + of.key_bytes * config_.page_size * of.num_kv_heads +
         (std::uint64_t{head} * config_.page_size + slot % config_.page_size) * of.value_bytes;
}

void KvStore::store(std::uint32_t layer, std::uint32_t slot, const float* k, const float* v) {
  const Layer& of = layers_[layer];
  for (std::uint32_t head = 0; head < of.num_kv_heads; ++head) {
    encode(config_.format, k + std::size_t{head} * of.k_dim, of.k_dim, key_at(layer, slot, head));
    if (!config_.value_in_key)
      encode(config_.format, v + std::size_t{head} * of.v_dim, of.v_dim, value_at(layer, slot, head));
  }
  if (config_.tag_pages) written_[tag(layer, slot)] = 1;
}

void KvStore::load_keys(std::uint32_t layer, std::uint32_t slot, std::uint32_t count, std::uint32_t kv_head,
                        float* out) const {
  const Layer& of = layers_[layer];
  if (config_.tag_pages) check_written(layer, slot, count);
  const std::uint8_t* from = key_at(layer, slot, kv_head);
  for (std::uint32_t i = 0; i < count; ++i, from += of.key_bytes, out += of.k_dim)
    decode(config_.format, from, of.k_dim, out);
}

void KvStore::load_values(std::uint32_t layer, std::uint32_t slot, std::uint32_t count, std::uint32_t kv_head,
                          float* out) const {
  const Layer& of = layers_[layer];
  if (config_.tag_pages) check_written(layer, slot, count);
  const std::uint8_t* from =
      config_.value_in_key ? key_at(layer, slot, kv_head) : value_at(layer, slot, kv_head);
  const std::uint64_t stride = config_.value_in_key ? of.key_bytes : of.value_bytes;
  if (config_.value_in_key && config_.format == NumberFormat::kFp4E2M1) {
    // The scales lie after all codes: the key is decoded whole.
    thread_local std::vector<float> key;
    key.resize(of.k_dim);
    for (std::uint32_t i = 0; i < count; ++i, from += stride, out += of.v_dim) {
      decode(config_.format, from, of.k_dim, key.data());
      std::copy_n(key.begin(), of.v_dim, out);
    }
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i, from += stride, out += of.v_dim)
    decode(config_.format, from, of.v_dim, out);
}

void KvStore::check_written(std::uint32_t layer, std::uint32_t slot, std::uint32_t count) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (written_[tag(layer, slot + i)] != 0) continue;
    throw UnwrittenRead(fmt::format("layer {}: token {} of page {} is read but was not written", layer,
                                    (slot + i) % config_.page_size, (slot + i) / config_.page_size));
  }
}

void KvStore::move(std::uint32_t from, std::uint32_t to) {
  for (std::uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    if (config_.tag_pages) {
      check_written(layer, from, 1);
      written_[tag(layer, to)] = 1;
    }
    const Layer& of = layers_[layer];
    for (std::uint32_t head = 0; head < of.num_kv_heads; ++head) {
      std::copy_n(key_at(layer, from, head), of.key_bytes, key_at(layer, to, head));
      if (!config_.value_in_key)
        std::copy_n(value_at(layer, from, head), of.value_bytes, value_at(layer, to, head));
    }
  }
}

void KvStore::hand_out(std::uint32_t page) {
  if (config_.tag_pages) {
    for (std::uint32_t layer = 0; layer < config_.num_layers; ++layer)
      std::fill_n(written_.begin() + static_cast<std::ptrdiff_t>(tag(layer, page * config_.page_size)),
                  config_.page_size, std::uint8_t{0});
  }
  if (!has_windows_ || place_of_[page] != kNowhere) return;
  // A place that was used before, else one more: at most num_pages pages have a place.
  if (free_places_.empty()) {
    place_of_[page] = peak_window_pages_;
  } else {
    place_of_[page] = free_places_.back();
    free_places_.pop_back();
  }
  peak_window_pages_ = std::max(peak_window_pages_, ++window_pages_);
}

void KvStore::release_windows(std::uint32_t page) {
  if (!has_windows_ || place_of_[page] == kNowhere) return;
  free_places_.push_back(place_of_[page]);
  place_of_[page] = kNowhere;
  --window_pages_;
}

}  // namespace tpsim::kvcache
