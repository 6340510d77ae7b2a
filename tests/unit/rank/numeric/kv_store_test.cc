#include "kvcache/storage/kv_store.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tpsim::kvcache {
namespace {

std::vector<float> random_vector(std::mt19937_64& random, std::size_t size) {
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> through(NumberFormat format, const float* values, std::uint32_t count) {
  std::vector<std::uint8_t> bytes(stored_bytes(format, count));
  std::vector<float> back(count);
  encode(format, values, count, bytes.data());
  decode(format, bytes.data(), count, back.data());
  return back;
}

// Random tokens to random slots of random layers, against a map of what each holds.
TEST(KvStore, GivesBackWhatWasStoredInEveryFormatAndPageSize) {
  std::mt19937_64 random(1);
  for (const NumberFormat format : {NumberFormat::kFp32, NumberFormat::kBf16, NumberFormat::kFp16,
                                    NumberFormat::kFp8E4M3, NumberFormat::kFp8E5M2, NumberFormat::kFp4E2M1}) {
    for (const std::uint32_t page_size : {1U, 16U, 64U}) {
      for (const bool latent : {false, true}) {
        KvStoreConfig config;
        config.format = format;
        config.num_layers = 3;
        config.num_pages = 5;
        config.page_size = page_size;
        config.num_kv_heads = latent ? 1 : 3;
        config.k_dim = latent ? 40 : 24;
        config.v_dim = latent ? 32 : 20;
        config.value_in_key = latent;
        KvStore store(config);
        EXPECT_EQ(store.bytes(), KvStore::bytes_per_token(config) * 5 * page_size);
        std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::vector<float>, std::vector<float>>>
            held;
        for (int i = 0; i < 300; ++i) {
          const auto layer = static_cast<std::uint32_t>(random() % 3);
          const auto slot = static_cast<std::uint32_t>(random() % (5 * page_size));
          auto k = random_vector(random, config.num_kv_heads * config.k_dim);
          auto v = random_vector(random, config.num_kv_heads * config.v_dim);
          store.store(layer, slot, k.data(), latent ? nullptr : v.data());
          held[{layer, slot}] = {std::move(k), std::move(v)};
        }
        for (const auto& [at, token] : held) {
          for (std::uint32_t head = 0; head < config.num_kv_heads; ++head) {
            std::vector<float> out(config.k_dim);
            store.load_keys(at.first, at.second, 1, head, out.data());
            const auto key = through(format, token.first.data() + head * config.k_dim, config.k_dim);
            EXPECT_EQ(out, key);
            out.resize(config.v_dim);
            store.load_values(at.first, at.second, 1, head, out.data());
            EXPECT_EQ(out, latent ? std::vector<float>(key.begin(), key.begin() + config.v_dim)
                                  : through(format, token.second.data() + head * config.v_dim, config.v_dim));
          }
        }
      }
    }
  }
}

TEST(KvStore, ReadsSeveralTokensOfAPageAtOnce) {
  KvStoreConfig config;
  config.format = NumberFormat::kFp32;
  config.num_layers = 1;
  config.num_pages = 2;
  config.page_size = 8;
  config.num_kv_heads = 2;
  config.k_dim = config.v_dim = 4;
  KvStore store(config);
  std::mt19937_64 random(2);
  std::vector<std::vector<float>> keys;
  for (std::uint32_t slot = 0; slot < 16; ++slot) {
    keys.push_back(random_vector(random, 8));
    store.store(0, slot, keys.back().data(), keys.back().data());
  }
  std::vector<float> out(5 * 4);
  store.load_keys(0, 10, 5, 1, out.data());
  for (std::uint32_t t = 0; t < 5; ++t) {
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(out[t * 4 + i], keys[10 + t][4 + i]);
  }
}

TEST(KvStore, TagsTellWhatWasNotWrittenSinceThePageWasHandedOut) {
  KvStoreConfig config;
  config.num_layers = 2;
  config.num_pages = 3;
  config.page_size = 4;
  config.num_kv_heads = 1;
  config.k_dim = config.v_dim = 2;
  config.tag_pages = true;
  KvStore store(config);
  const float x[2] = {1, 2};
  float out[8];
  for (std::uint32_t slot = 4; slot < 7; ++slot) store.store(0, slot, x, x);
  store.load_keys(0, 4, 3, 0, out);
  EXPECT_THROW(store.load_keys(0, 4, 4, 0, out), std::logic_error);    // the fourth token
  EXPECT_THROW(store.load_values(1, 4, 1, 0, out), std::logic_error);  // the other layer
  store.hand_out(1);
  EXPECT_THROW(store.load_keys(0, 4, 1, 0, out), std::logic_error);  // a former owner's
}

TEST(KvStore, WindowLayersReuseThePlacesThatWereReleased) {
  KvStoreConfig config;
  config.format = NumberFormat::kFp32;
  config.num_layers = 3;
  config.num_pages = 100;
  config.page_size = 2;
  config.num_kv_heads = 1;
  config.k_dim = config.v_dim = 2;
  config.windowed = {false, true, true};
  config.tag_pages = true;
  KvStore store(config);
  float x[2];
  float out[2];
  // A sequence that moves through all pages with a window of 6 tokens.
  for (std::uint32_t slot = 0; slot < 200; ++slot) {
    if (slot % 2 == 0) store.hand_out(slot / 2);
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      x[0] = x[1] = static_cast<float>(1000 * layer + slot);
      store.store(layer, slot, x, x);
    }
    if (slot >= 6 && slot % 2 == 1) store.release_windows((slot - 6) / 2);
    for (std::uint32_t back = 0; back < 5 && back <= slot; ++back) {
      for (std::uint32_t layer = 0; layer < 3; ++layer) {
        store.load_keys(layer, slot - back, 1, 0, out);
        ASSERT_EQ(out[0], static_cast<float>(1000 * layer + slot - back));
      }
    }
  }
  EXPECT_LE(store.peak_window_pages(), 4U);
  EXPECT_LE(store.window_pages(), 4U);
  store.load_keys(0, 0, 1, 0, out);  // full layers keep everything
  EXPECT_EQ(out[0], 0);
  EXPECT_THROW(store.load_keys(1, 0, 1, 0, out), std::logic_error);
}

}  // namespace
}  // namespace tpsim::kvcache
