// The indexer's selection and the attention over it, against both written down in fp64: random ragged
// batches, page sizes, ties, contexts shorter and longer than top_k.
#include "attention/math/sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kvcache/storage/kv_store.h"

namespace tpsim::attention {
namespace {

struct Case {
  std::uint32_t page_size = 1, top_k = 1;
  std::uint32_t index_heads = 1, index_dim = 8;
  std::uint32_t heads = 1, latent = 8, rope = 4;
  SparsePlan plan;
};

class Batch {
 public:
  Batch(const Case& of, std::mt19937_64& random)
      : case_(of), keys_(store_config(of, of.index_dim, false)), latents_(store_config(of, k_dim(), true)) {
    std::vector<std::uint32_t> order(kPages);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    std::uint32_t rows = 0;
    for (const SparseItem& item : of.plan.items) {
      std::vector<std::uint32_t>& table = tables_.emplace_back();
      const std::uint32_t length = item.prefix + item.q_len;
      std::vector<float> index_keys(std::size_t{length} * of.index_dim);
      // Whole numbers: scores are exact in any order of summation, and many of them are the same.
      for (float& x : index_keys) x = small(random);
      std::vector<float> latents(std::size_t{length} * k_dim());
      for (float& x : latents) x = normal_(random);
      for (std::uint32_t t = 0; t < length; ++t) {
        if (t % of.page_size == 0) {
          table.push_back(order.back());
          order.pop_back();
        }
        const std::uint32_t slot = table.back() * of.page_size + t % of.page_size;
        keys_.store(0, slot, index_keys.data() + std::size_t{t} * of.index_dim, nullptr);
        latents_.store(0, slot, latents.data() + std::size_t{t} * k_dim(), nullptr);
      }
      index_keys_.push_back(std::move(index_keys));
      latent_rows_.push_back(std::move(latents));
      first_row_.push_back(rows);
      rows += item.q_len;
    }
    for (const auto& table : tables_) views_.emplace_back(table);
    index_q_.resize(std::size_t{rows} * of.index_heads * of.index_dim);
    for (float& x : index_q_) x = small(random);
    weights_.resize(std::size_t{rows} * of.index_heads);
    for (float& x : weights_) x = small(random);
    q_.resize(std::size_t{rows} * of.heads * k_dim());
    for (float& x : q_) x = normal_(random);
    out_.assign(std::size_t{rows} * of.heads * of.latent, -1e30F);
  }

  void check() {
    IndexCall index;
    index.keys = &keys_;
    index.heads = case_.index_heads;
    index.head_dim = case_.index_dim;
    index.top_k = case_.top_k;
    index.page_tables = views_;
    index.q = index_q_.data();
    index.weights = weights_.data();
    AttentionCall call;
    call.store = &latents_;
    call.shape.num_q_heads = case_.heads;
    call.shape.num_kv_heads = 1;
    call.shape.head_dim = k_dim();
    call.shape.v_head_dim = case_.latent;
    call.scale = 0.3F;
    call.page_tables = views_;
    call.first_row = first_row_;
    call.q = q_.data();
    call.out = out_.data();
    IndexMath indexer;
    SparseMath math;
    std::vector<std::uint32_t> selected;
    for (const SparseItem& item : case_.plan.items) {
      for (std::uint32_t t = 0; t < item.q_len; ++t) {
        const std::uint32_t row = first_row_[item.request] + t;
        const std::uint32_t position = item.prefix + t;
        indexer.select(index, item.request, row, position, selected);
        ASSERT_EQ(selected, best(item.request, row, position));
        math.attend(case_.plan, call, item.request, row, selected);
        for (std::uint32_t h = 0; h < case_.heads; ++h)
          ASSERT_LT(error(item.request, row, h, selected), 2e-5);
      }
    }
  }

 private:
  static constexpr std::uint32_t kPages = 400;

  static kvcache::KvStoreConfig store_config(const Case& of, std::uint32_t dim, bool latent) {
    kvcache::KvStoreConfig config;
    config.format = NumberFormat::kFp32;
    config.num_layers = 1;
    config.num_pages = kPages;
    config.page_size = of.page_size;
    config.num_kv_heads = 1;
    config.k_dim = dim;
    config.v_dim = latent ? of.latent : 0;
    config.value_in_key = latent;
    config.tag_pages = true;
    return config;
  }
  std::uint32_t k_dim() const { return case_.latent + case_.rope; }
  static float small(std::mt19937_64& random) { return static_cast<float>(random() % 5) - 2; }

  std::vector<std::uint32_t> best(std::uint32_t request, std::uint32_t row, std::uint32_t position) const {
    std::vector<std::pair<double, std::uint32_t>> order;  // score downwards, position upwards
    for (std::uint32_t k = 0; k <= position; ++k) {
      double score = 0;
      for (std::uint32_t h = 0; h < case_.index_heads; ++h) {
        double product = 0;
        for (std::uint32_t d = 0; d < case_.index_dim; ++d)
          product += double{index_q_[(std::size_t{row} * case_.index_heads + h) * case_.index_dim + d]} *
                     index_keys_[request][std::size_t{k} * case_.index_dim + d];
        score += weights_[std::size_t{row} * case_.index_heads + h] * std::max(0.0, product);
      }
      order.emplace_back(-score, k);
    }
    std::sort(order.begin(), order.end());
    order.resize(std::min<std::size_t>(order.size(), case_.top_k));
    std::vector<std::uint32_t> positions;
    for (const auto& [score, position_of] : order) positions.push_back(position_of);
    std::sort(positions.begin(), positions.end());
    return positions;
  }

  double error(std::uint32_t request, std::uint32_t row, std::uint32_t head,
               const std::vector<std::uint32_t>& selected) const {
    const float* q = q_.data() + (std::size_t{row} * case_.heads + head) * k_dim();
    std::vector<double> scores;
    for (const std::uint32_t position : selected) {
      double score = 0;
      for (std::uint32_t d = 0; d < k_dim(); ++d)
        score += double{q[d]} * latent_rows_[request][std::size_t{position} * k_dim() + d];
      scores.push_back(0.3F * score);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    std::vector<double> wanted(case_.latent, 0);
    for (std::size_t i = 0; i < selected.size(); ++i) {
      const double weight = std::exp(scores[i] - largest);
      sum += weight;
      for (std::uint32_t d = 0; d < case_.latent; ++d)
        wanted[d] += weight * latent_rows_[request][std::size_t{selected[i]} * k_dim() + d];
    }
    double worst = 0;
    double size = 1e-3;
    for (std::uint32_t d = 0; d < case_.latent; ++d) {
      const double value = wanted[d] / sum;
      size = std::max(size, std::fabs(value));
      worst = std::max(worst,
                       std::fabs(value - out_[(std::size_t{row} * case_.heads + head) * case_.latent + d]));
    }
    return worst / size;
  }

  const Case case_;
  std::normal_distribution<float> normal_;
  kvcache::KvStore keys_, latents_;
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<std::span<const std::uint32_t>> views_;
  std::vector<std::uint32_t> first_row_;
  std::vector<std::vector<float>> index_keys_, latent_rows_;
  std::vector<float> index_q_, weights_, q_, out_;
};

TEST(SparseAttention, SelectsAndAttendsAsWrittenDown) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 80; ++round) {
    Case of;
    of.page_size = std::vector<std::uint32_t>{1, 4, 16, 64}[random() % 4];
    of.top_k = 1 + random() % 70;
    of.index_heads = 1 + random() % 4;
    of.index_dim = 8 * (1 + random() % 3);
    of.heads = 1 + random() % 5;
    of.latent = 4 + random() % 40;
    of.rope = 2 * (random() % 9);
    of.plan.top_k = of.top_k;
    of.plan.block = std::vector<std::uint32_t>{1, 16, 64}[random() % 3];
    of.plan.part = random() % 2 == 0 ? 0 : of.plan.block * (1 + random() % 3);
    const std::uint32_t requests = 1 + random() % 4;
    for (std::uint32_t i = 0; i < requests; ++i) {
      const auto prefix = static_cast<std::uint32_t>(random() % 3 == 0 ? 0 : random() % 60);
      of.plan.items.push_back({i, prefix, static_cast<std::uint32_t>(1 + random() % 12)});
    }
    SCOPED_TRACE(round);
    Batch(of, random).check();
    if (HasFatalFailure()) return;
  }
}

// Tiles of 128 share a scale; what is stored is within a 16th (E4M3 has 3 bits) of what was given, or a part
// of the tile's largest.
TEST(SparseAttention, RoundsAsTheFp8CachesDo) {
  std::mt19937_64 random(8);
  std::normal_distribution<float> normal(0, 30);
  std::vector<float> token(512 + 64);
  for (float& x : token) x = normal(random);
  token[3] = 1000;
  const std::vector<float> before = token;
  round_scaled_latent(token.data(), 512, 64);
  EXPECT_FLOAT_EQ(token[3], 1000);  // the largest of its tile
  for (std::size_t i = 0; i < 512; ++i)
    EXPECT_NEAR(token[i], before[i],
                std::max(std::fabs(before[i]) / 16, i < 128 ? 1000 / 448.0F / 512 : 1e-3F));
  for (std::size_t i = 512; i < 576; ++i) EXPECT_NEAR(token[i], before[i], std::fabs(before[i]) / 256);
  std::vector<float> key(128, 0.25F);
  key[0] = 449;
  round_index_key(key.data(), 128);
  EXPECT_EQ(key[0], 448);    // scale 2: 224.5 lies between 208 and 224
  EXPECT_EQ(key[1], 0.25F);  // a power of two stays
  std::vector<float> zeros(16, 0.0F);
  round_index_key(zeros.data(), 16);
  EXPECT_EQ(zeros[5], 0);
}

// Sums in closed form against the sums themselves.
TEST(SparseAttention, CountsTokens) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const SparseItem item{0, static_cast<std::uint32_t>(random() % 40),
                          static_cast<std::uint32_t>(random() % 40)};
    const auto top_k = static_cast<std::uint32_t>(1 + random() % 50);
    std::uint64_t scored = 0, listed = 0;
    std::uint32_t selecting = 0;
    for (std::uint32_t t = 0; t < item.q_len; ++t) {
      const std::uint32_t seen = item.prefix + t + 1;
      scored += seen;
      listed += std::min(seen, top_k);
      if (seen > top_k) ++selecting;
    }
    const SparseLoad load = load_of({.items = {item}, .top_k = top_k});
    EXPECT_EQ(load.scored, static_cast<double>(scored));
    EXPECT_EQ(load.listed, static_cast<double>(listed));
    EXPECT_EQ(load.searching, selecting);
  }
}

}  // namespace
}  // namespace tpsim::attention
