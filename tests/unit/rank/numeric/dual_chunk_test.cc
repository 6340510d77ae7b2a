// Dual chunk attention over pages against its definition: attention whose rotary distance is the paper's
// function of two positions, in fp64, on random ragged batches across the borders of chunks, pages and tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "attention/math/attention_math.h"
#include "rank/config/model_config.h"
#include "rank/config/rope.h"
#include "tests/unit/rank/numeric/paged_pool.h"

namespace tpsim::rank {
namespace {

// How far apart query i and key j <= i are taken to be (An et al. 2024, section 3, with s the length of a
// chunk and c the largest distance).
std::uint32_t distance(const DualChunkConfig& config, std::uint32_t i, std::uint32_t j) {
  const std::uint32_t s = config.chunk_size - config.local_size;
  const std::uint32_t chunks = i / s - j / s;
  if (chunks == 0) return i - j;
  if (chunks == 1) return std::min(s + i % s, config.chunk_size) - j % s;
  return std::min(2 * s - 1, config.chunk_size) - j % s;
}

struct Case {
  DualChunkConfig chunks;
  attention::LayerShape shape;
  std::uint32_t page_size = 1;
  std::vector<std::uint32_t> prefixes, q_lens;
};

RopeConfig turning_at(double theta) {
  RopeConfig rope;
  rope.theta = theta;
  return rope;
}

class Batch {
 public:
  Batch(const Case& of, std::mt19937_64& random)
      : case_(of),
        rope_(turning_at(1000), of.shape.head_dim, 1U << 20),
        pool_(testing::lengths_of(of.prefixes, of.q_lens), of.shape, of.page_size, random) {
    const std::uint32_t dim = of.shape.head_dim;
    const std::size_t width = std::size_t{of.shape.num_kv_heads} * dim;
    std::uint32_t rows = 0;
    for (std::size_t i = 0; i < of.q_lens.size(); ++i) {
      const std::uint32_t length = of.prefixes[i] + of.q_lens[i];
      keys_.push_back(random_vector(random, length * width));
      values_.push_back(random_vector(random, length * width));
      std::vector<float> turned = keys_.back();
      for (std::uint32_t t = 0; t < length; ++t) {
        float* const key = turned.data() + t * width;
        for (std::uint32_t h = 0; h < of.shape.num_kv_heads; ++h)
          rotate(chunk_rotations(of.chunks, t).key, key + std::size_t{h} * dim);
        pool_.store(0, i, t, key, values_[i].data() + t * width);
      }
      first_row_.push_back(rows);
      rows += of.q_lens[i];
    }
    queries_ = random_vector(random, std::size_t{rows} * of.shape.num_q_heads * of.shape.head_dim);
    turned_.fill(queries_);
    for (std::size_t i = 0; i < of.q_lens.size(); ++i) {
      for (std::uint32_t t = 0; t < of.q_lens[i]; ++t) {
        const ChunkRotations by = chunk_rotations(of.chunks, of.prefixes[i] + t);
        for (std::uint32_t h = 0; h < of.shape.num_q_heads; ++h) {
          const std::size_t at =
              ((std::size_t{first_row_[i]} + t) * of.shape.num_q_heads + h) * of.shape.head_dim;
          rotate(by.query, turned_[0].data() + at);
          rotate(by.query_succ, turned_[1].data() + at);
          rotate(by.query_inter, turned_[2].data() + at);
        }
      }
    }
    out_.assign(queries_.size(), -1e30F);
    for (std::uint32_t apart = 0; apart <= of.chunks.chunk_size; ++apart) {
      for (const double phase : {0.0, std::numbers::pi / 2}) {  // cos x, and sin x = cos(x - pi / 2)
        for (std::uint32_t d = 0; d < dim / 2; ++d)
          table_.push_back(std::cos(apart * std::pow(1000.0, -2.0 * d / dim) - phase));
      }
    }
  }

  attention::AttentionCall call() {
    attention::AttentionCall call;
    call.store = &pool_.store();
    call.shape = case_.shape;
    call.scale = scale();
    call.page_tables = pool_.page_tables();
    call.first_row = first_row_;
    call.q = turned_[0].data();
    call.q_succ = turned_[1].data();
    call.q_inter = turned_[2].data();
    call.out = out_.data();
    return call;
  }

  // Largest difference from the definition, relative to the largest element of the row.
  double error() const {
    double worst = 0;
    for (std::size_t i = 0; i < case_.q_lens.size(); ++i) {
      for (std::uint32_t t = 0; t < case_.q_lens[i]; ++t) {
        for (std::uint32_t h = 0; h < case_.shape.num_q_heads; ++h)
          worst = std::max(worst, error_of(i, t, h));
      }
    }
    return worst;
  }

 private:
  static std::vector<float> random_vector(std::mt19937_64& random, std::size_t size) {
    std::normal_distribution<float> normal;
    std::vector<float> values(size);
    for (float& value : values) value = normal(random);
    return values;
  }
  float scale() const { return 1.5F / std::sqrt(static_cast<float>(case_.shape.head_dim)); }
  void rotate(std::uint32_t steps, float* x) const {
    std::vector<float> cos(case_.shape.head_dim / 2);
    std::vector<float> sin(cos.size());
    rope_.angles(steps, 1, cos.data(), sin.data());
    rope_.rotate(cos.data(), sin.data(), x);
  }

  double error_of(std::size_t request, std::uint32_t token, std::uint32_t head) const {
    const std::uint32_t dim = case_.shape.head_dim;
    const std::uint32_t heads = case_.shape.num_kv_heads;
    const std::uint32_t kv_head = head / (case_.shape.num_q_heads / heads);
    const std::uint32_t position = case_.prefixes[request] + token;
    const std::size_t row =
        (std::size_t{first_row_[request]} + token) * case_.shape.num_q_heads * dim + std::size_t{head} * dim;
    std::vector<double> wanted(dim, 0);
    double sum = 0;
    for (std::uint32_t j = 0; j <= position; ++j) {
      const std::size_t at = (std::size_t{j} * heads + kv_head) * dim;
      const std::size_t apart = distance(case_.chunks, position, j);
      double score = 0;
      for (std::uint32_t d = 0; d < dim / 2; ++d) {
        const double cos = table_[apart * dim + d], sin = table_[apart * dim + dim / 2 + d];
        const double qa = queries_[row + d], qb = queries_[row + d + dim / 2];
        const double ka = keys_[request][at + d], kb = keys_[request][at + d + dim / 2];
        score += (qa * ka + qb * kb) * cos + (qa * kb - qb * ka) * sin;
      }
      const double weight = std::exp(score * scale());
      sum += weight;
      for (std::uint32_t d = 0; d < dim; ++d) wanted[d] += weight * values_[request][at + d];
    }
    double size = 1e-30;
    double difference = 0;
    for (std::uint32_t d = 0; d < dim; ++d) {
      size = std::max(size, std::fabs(wanted[d] / sum));
      difference = std::max(difference, std::fabs(wanted[d] / sum - out_[row + d]));
    }
    return difference / size;
  }

  const Case case_;
  RotaryEmbedding rope_;
  testing::PagedPool pool_;
  std::vector<std::uint32_t> first_row_;
  std::vector<std::vector<float>> keys_, values_;
  std::vector<float> queries_, out_;
  std::array<std::vector<float>, 3> turned_;
  std::vector<double> table_;  // cos and sin of each distance [chunk_size + 1, head_dim]
};

Case random_case(std::mt19937_64& random, bool decode) {
  Case of;
  of.page_size = std::vector<std::uint32_t>{1, 4, 16}[random() % 3];
  const auto chunk_len = static_cast<std::uint32_t>(of.page_size * (1 + random() % 4));
  of.chunks.local_size = static_cast<std::uint32_t>(1 + random() % (2 * chunk_len));
  of.chunks.chunk_size = chunk_len + of.chunks.local_size;
  of.shape.num_kv_heads = 1U << random() % 2;
  of.shape.num_q_heads = of.shape.num_kv_heads * (1U << random() % 3);
  of.shape.head_dim = of.shape.v_head_dim = std::vector<std::uint32_t>{16, 32, 64}[random() % 3];
  for (std::uint64_t i = 1 + random() % 4; i > 0; --i) {
    // Prefixes from none to several chunks, often exactly at a border or beside it.
    const std::uint64_t chunks = random() % 5;
    const std::uint64_t beside = random() % 2 == 0 ? random() % chunk_len : (random() % 3 + chunk_len - 1);
    of.prefixes.push_back(static_cast<std::uint32_t>(chunks * chunk_len + beside % (chunk_len + 2)));
    of.q_lens.push_back(decode ? 1U : static_cast<std::uint32_t>(1 + random() % (2 * chunk_len)));
  }
  if (!decode && random() % 2 == 0) of.prefixes.front() = 0;
  return of;
}

TEST(DualChunk, RotationsGiveTheDistancesOfTheDefinition) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    const Case of = random_case(random, /*decode=*/true);
    const std::uint32_t len = of.chunks.chunk_len();
    for (std::uint32_t i = 0; i < 5 * len; ++i) {
      const ChunkRotations query = chunk_rotations(of.chunks, i);
      for (std::uint32_t j = 0; j <= i; ++j) {
        const std::uint32_t apart = i / len - j / len;
        const std::uint32_t rotated = apart == 0   ? query.query
                                      : apart == 1 ? query.query_succ
                                                   : query.query_inter;
        ASSERT_EQ(rotated - chunk_rotations(of.chunks, j).key, distance(of.chunks, i, j));
      }
    }
  }
}

TEST(DualChunk, NeighboursKeepTheirDistance) {
  // The nearest local_size tokens are as far away as they are, on both sides of a chunk's border.
  const DualChunkConfig config{.chunk_size = 96, .local_size = 32, .original_max_position_embeddings = 0};
  for (std::uint32_t i = 0; i < 400; ++i) {
    for (std::uint32_t j = i > 32 ? i - 32 : 0; j <= i; ++j) EXPECT_EQ(distance(config, i, j), i - j);
  }
}

TEST(DualChunk, LongSequencesAreScaledAsSglangScalesThem) {
  const DualChunkConfig config{
      .chunk_size = 262144, .local_size = 8192, .original_max_position_embeddings = 262144};
  EXPECT_EQ(config.scaling(1000), 1);
  EXPECT_EQ(config.scaling(262144), 1);
  EXPECT_NEAR(config.scaling(1048576), std::pow(0.1 * std::log(4.0) + 1, 2), 1e-12);
}

TEST(DualChunk, DecodeAgreesWithTheDefinition) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 60; ++round) {
    const Case of = random_case(random, /*decode=*/true);
    Batch batch(of, random);
    attention::DecodePlan plan;
    const std::uint32_t len = of.chunks.chunk_len();
    for (std::uint32_t i = 0; i < of.prefixes.size(); ++i) {
      const std::uint32_t own = of.prefixes[i] / len * len;
      const std::uint32_t before = own > 0 ? own - len : 0;
      const auto item = [&](std::uint32_t begin, std::uint32_t end) {
        const auto split = static_cast<std::uint32_t>(1 + random() % (len + 3));
        return attention::DecodeItem{i, begin, end, (end - begin + split - 1) / split, split};
      };
      plan.items.push_back(item(own, of.prefixes[i] + 1));
      plan.succ_items.push_back(item(before, own));
      plan.inter_items.push_back(item(0, before));
    }
    attention::AttentionMath().decode(plan, batch.call());
    ASSERT_LE(batch.error(), 1e-5) << "round " << round;
  }
}

TEST(DualChunk, ExtendAgreesWithTheDefinition) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const Case of = random_case(random, /*decode=*/false);
    Batch batch(of, random);
    attention::ExtendPlan plan;
    plan.chunk_len = of.chunks.chunk_len();
    plan.tile_m = static_cast<std::uint32_t>(1 + random() % 40);
    plan.tile_n = static_cast<std::uint32_t>(1 + random() % 40);
    if (random() % 2 == 0) plan.kv_chunk = static_cast<std::uint32_t>(1 + random() % 50);
    for (std::uint32_t i = 0; i < of.prefixes.size(); ++i)
      plan.items.push_back({i, of.prefixes[i], of.q_lens[i]});
    std::vector<attention::ExtendTile> tiles;
    attention::extend_tiles(plan, tiles);
    for (const attention::ExtendTile& tile : tiles) {
      const std::uint32_t first = of.prefixes[tile.item] + tile.row;
      ASSERT_EQ(first / plan.chunk_len, (first + tile.rows - 1) / plan.chunk_len);
    }
    attention::AttentionMath().extend(plan, batch.call());
    ASSERT_LE(batch.error(), 1e-5) << "round " << round;
  }
}

}  // namespace
}  // namespace tpsim::rank
