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

}  // namespace

KvStore::KvStore(const KvStoreConfig& config)
    : config_(config),
      key_bytes_(stored_bytes(config.format, config.k_dim)),
      value_bytes_(config.value_in_key ? 0 : stored_bytes(config.format, config.v_dim)),
      page_bytes_((key_bytes_ + value_bytes_) * config.page_size * config.num_kv_heads),
      memory_(map_zeros(bytes())) {
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
  const std::uint64_t value = config.value_in_key ? 0 : stored_bytes(config.format, config.v_dim);
  return (stored_bytes(config.format, config.k_dim) + value) * config.num_kv_heads * config.num_layers;
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
  return memory_.get() + (std::uint64_t{layer} * config_.num_pages + place) * page_bytes_;
}

std::uint8_t* KvStore::key_at(std::uint32_t layer, std::uint32_t slot, std::uint32_t head) const {
  return page_at(layer, slot / config_.page_size) +
         (std::uint64_t{head} * config_.page_size + slot % config_.page_size) * key_bytes_;
}

std::uint8_t* KvStore::value_at(std::uint32_t layer, std::uint32_t slot, std::uint32_t head) const {
  return page_at(layer, slot / config_.page_size) + key_bytes_ * config_.page_size * config_.num_kv_heads +
         (std::uint64_t{head} * config_.page_size + slot % config_.page_size) * value_bytes_;
}

void KvStore::store(std::uint32_t layer, std::uint32_t slot, const float* k, const float* v) {
  for (std::uint32_t head = 0; head < config_.num_kv_heads; ++head) {
    encode(config_.format, k + std::size_t{head} * config_.k_dim, config_.k_dim, key_at(layer, slot, head));
    if (!config_.value_in_key)
      encode(config_.format, v + std::size_t{head} * config_.v_dim, config_.v_dim,
             value_at(layer, slot, head));
  }
  if (config_.tag_pages) written_[tag(layer, slot)] = 1;
}

void KvStore::load_keys(std::uint32_t layer, std::uint32_t slot, std::uint32_t count, std::uint32_t kv_head,
                        float* out) const {
  if (config_.tag_pages) check_written(layer, slot, count);
  const std::uint8_t* from = key_at(layer, slot, kv_head);
  for (std::uint32_t i = 0; i < count; ++i, from += key_bytes_, out += config_.k_dim)
    decode(config_.format, from, config_.k_dim, out);
}

void KvStore::load_values(std::uint32_t layer, std::uint32_t slot, std::uint32_t count, std::uint32_t kv_head,
                          float* out) const {
  if (config_.tag_pages) check_written(layer, slot, count);
  const std::uint8_t* from =
      config_.value_in_key ? key_at(layer, slot, kv_head) : value_at(layer, slot, kv_head);
  const std::uint64_t stride = config_.value_in_key ? key_bytes_ : value_bytes_;
  if (config_.value_in_key && config_.format == NumberFormat::kFp4E2M1) {
    // The scales lie after all codes: the key is decoded whole.
    thread_local std::vector<float> key;
    key.resize(config_.k_dim);
    for (std::uint32_t i = 0; i < count; ++i, from += stride, out += config_.v_dim) {
      decode(config_.format, from, config_.k_dim, key.data());
      std::copy_n(key.begin(), config_.v_dim, out);
    }
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i, from += stride, out += config_.v_dim)
    decode(config_.format, from, config_.v_dim, out);
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
    for (std::uint32_t head = 0; head < config_.num_kv_heads; ++head) {
      std::copy_n(key_at(layer, from, head), key_bytes_, key_at(layer, to, head));
      if (!config_.value_in_key)
        std::copy_n(value_at(layer, from, head), value_bytes_, value_at(layer, to, head));
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
