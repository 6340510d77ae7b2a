// The keys and values of one rank, really stored: per layer, per page, in the width of --kv-cache-dtype.
//
// A slot is page * page_size + offset, the same number on every rank and in every layer. Within a layer the
// elements of one head in one page are contiguous: [page][head][token of the page][dim].
//
// fp4_e2m1 keeps a power-of-two scale for every 16 elements (proto/base/number_format.h); the fp8 formats
// store what is given, saturated, as SGLang does with scale 1.
//
// Layers with a sliding window keep less: what nobody will look at again is given back (release_windows) and
// its memory serves other pages. Within those layers a page number stands for a place that is taken when the
// page is handed out.
//
// With `tag_pages` every slot of every layer remembers whether it was written since its page was last handed
// out; reading one that was not throws UnwrittenRead with its layer, page and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "proto/base/number_format.h"

namespace tpsim::kvcache {

// A token of a page was read that its owner has not written.
struct UnwrittenRead : std::logic_error {
  using std::logic_error::logic_error;
};

// What a token has in one layer.
struct KvHeads {
  std::uint32_t num_kv_heads = 0;  // of this rank
  std::uint32_t k_dim = 0;         // elements of a key
  std::uint32_t v_dim = 0;         // elements of a value
};

struct KvStoreConfig {
  NumberFormat format = NumberFormat::kBf16;
  std::uint32_t num_layers = 0;
  std::uint32_t num_pages = 0;     // page numbers are below this
  std::uint32_t page_size = 1;     // tokens
  std::uint32_t num_kv_heads = 0;  // of this rank
  std::uint32_t k_dim = 0;         // elements of a key
  std::uint32_t v_dim = 0;         // elements of a value
  // MLA: there is one head whose key is the latent and the rope part; the value is the key's first v_dim
  // elements and is not stored again.
  bool value_in_key = false;
  // Where layers differ in their heads: those of each, in place of the above. [num_layers]
  std::vector<KvHeads> layers = {};
  // Which layers have a sliding window; empty: none. [num_layers]
  std::vector<bool> windowed;
  bool tag_pages = false;
};

class KvStore {
 public:
  // Throws UserError naming --max-total-tokens where the memory cannot be had.
  explicit KvStore(const KvStoreConfig& config);
  KvStore(const KvStore&) = delete;

  const KvStoreConfig& config() const { return config_; }
  // Bytes of one token in all layers, scales included.
  static std::uint64_t bytes_per_token(const KvStoreConfig& config);
  std::uint64_t bytes() const { return bytes_per_token(config_) * config_.page_size * config_.num_pages; }

  // Writes one token: k [num_kv_heads, k_dim], v [num_kv_heads, v_dim] (not read where value_in_key).
  void store(std::uint32_t layer, std::uint32_t slot, const float* k, const float* v);
  // Reads `count` consecutive tokens of one page and one head as fp32: out [count, k_dim].
  // REQUIRES: slot .. slot + count - 1 lie in one page.
  void load_keys(std::uint32_t layer, std::uint32_t slot, std::uint32_t count, std::uint32_t kv_head,
                 float* out) const;
  // out [count, v_dim]
  void load_values(std::uint32_t layer, std::uint32_t slot, std::uint32_t count, std::uint32_t kv_head,
                   float* out) const;

  // Copies a token of all layers to another slot.
  void move(std::uint32_t from, std::uint32_t to);

  // A page has a new owner: its tags are cleared (tag_pages), and window layers find it a place. Only window
  // layers need it before store().
  void hand_out(std::uint32_t page);
  // Window layers give up what they hold of a page, if anything.
  void release_windows(std::uint32_t page);
  // Places taken in each window layer, now and at most.
  std::uint32_t window_pages() const { return window_pages_; }
  std::uint32_t peak_window_pages() const { return peak_window_pages_; }

 private:
  std::uint8_t* page_at(std::uint32_t layer, std::uint32_t page) const;
  std::uint8_t* key_at(std::uint32_t layer, std::uint32_t slot, std::uint32_t head) const;
  std::uint8_t* value_at(std::uint32_t layer, std::uint32_t slot, std::uint32_t head) const;
  std::size_t tag(std::uint32_t layer, std::uint32_t slot) const {
    return std::size_t{layer} * config_.num_pages * config_.page_size + slot;
  }
  void check_written(std::uint32_t layer, std::uint32_t slot, std::uint32_t count) const;

  const KvStoreConfig config_;
  struct Layer : KvHeads {
    std::uint64_t key_bytes = 0;    // of one head's key of one token
    std::uint64_t value_bytes = 0;  // 0 where the value is in the key
    std::uint64_t page_bytes = 0;
    std::uint64_t begin = 0;  // in the memory
  };
  std::vector<Layer> layers_;
  const std::shared_ptr<std::uint8_t> memory_;
  std::vector<std::uint8_t> written_;  // per layer and slot, 0 or 1

  bool has_windows_ = false;
  std::vector<std::uint32_t> place_of_;  // per page, in window layers; kNowhere: none
  std::vector<std::uint32_t> free_places_;
  std::uint32_t window_pages_ = 0;
  std::uint32_t peak_window_pages_ = 0;
};

}  // namespace tpsim::kvcache
