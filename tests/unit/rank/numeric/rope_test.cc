#include "rank/config/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>
#include <vector>

namespace tpsim::rank {
namespace {

struct Angles {
  std::vector<float> cos, sin;
};

Angles angles(const RotaryEmbedding& rope, std::uint32_t position, std::uint32_t length) {
  Angles out{std::vector<float>(rope.dim() / 2), std::vector<float>(rope.dim() / 2)};
  rope.angles(position, length, out.cos.data(), out.sin.data());
  return out;
}

std::vector<float> turned(const RotaryEmbedding& rope, std::vector<float> x, std::uint32_t position) {
  const Angles at = angles(rope, position, position + 1);
  rope.rotate(at.cos.data(), at.sin.data(), x.data());
  return x;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

std::vector<RopeConfig> variants() {
  RopeConfig plain;
  RopeConfig linear = plain;
  linear.type = RopeType::kLinear;
  linear.factor = 4;
  RopeConfig llama3 = plain;
  llama3.type = RopeType::kLlama3;
  llama3.factor = 8;
  llama3.theta = 500000;
  llama3.original_max_position_embeddings = 8192;
  RopeConfig yarn = plain;
  yarn.type = RopeType::kYarn;
  yarn.factor = 4;
  yarn.original_max_position_embeddings = 4096;
  RopeConfig interleaved = plain;
  interleaved.interleaved = true;
  RopeConfig dynamic = plain;
  dynamic.type = RopeType::kDynamic;
  dynamic.factor = 2;
  return {plain, linear, llama3, yarn, interleaved, dynamic};
}

// Phi-3: pairs have factors of their own, which change beyond the original context; products of queries and
// keys grow by the same factor in both (Transformers' _compute_longrope_parameters).
TEST(Rope, LongRopeSlowsPairsByTheLengthOfTheSequence) {
  RopeConfig config;
  config.type = RopeType::kLongRope;
  config.original_max_position_embeddings = 64;
  config.short_factor = {1, 2};
  config.long_factor = {4, 8};
  config.attention_factor = 1.5;
  const RotaryEmbedding rope(config, 4, 256);
  for (const auto& [length, first, second] : {std::tuple{64U, 1.0, 2.0}, {65U, 4.0, 8.0}}) {
    const Angles at = angles(rope, 10, length);
    EXPECT_NEAR(at.cos[0], 1.5 * std::cos(10 / first), 1e-6);
    EXPECT_NEAR(at.sin[1], 1.5 * std::sin(10 * 0.01 / second), 1e-6);
  }
}

// q.k of rotated vectors depends on the distance alone, and lengths grow by YaRN's factor only.
TEST(Rope, EveryVariantIsARotationByDistance) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (const RopeConfig& config : variants()) {
    const RotaryEmbedding rope(config, 64, 16384);
    std::vector<float> q(64);
    std::vector<float> k(64);
    for (float& value : q) value = normal(random);
    for (float& value : k) value = normal(random);
    const double factor = double{rope.attention_factor()} * rope.attention_factor();
    EXPECT_NEAR(dot(turned(rope, q, 777), turned(rope, q, 777)) / dot(q, q), factor, 1e-5);
    for (const std::uint32_t distance : {0U, 1U, 50U, 3000U}) {
      const double near = dot(turned(rope, q, distance), turned(rope, k, 0));
      const double far = dot(turned(rope, q, 5000 + distance), turned(rope, k, 5000));
      EXPECT_NEAR(near, far, 2e-3) << static_cast<int>(config.type) << " at " << distance;
    }
  }
}

TEST(Rope, LinearDividesPositions) {
  RopeConfig config;
  const RotaryEmbedding plain(config, 32, 1000);
  config.type = RopeType::kLinear;
  config.factor = 4;
  const RotaryEmbedding linear(config, 32, 1000);
  const Angles a = angles(linear, 400, 401);
  const Angles b = angles(plain, 100, 101);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(a.cos[i], b.cos[i], 1e-6);
}

TEST(Rope, DynamicStretchesBeyondTheTrainedLengthOnly) {
  RopeConfig config;
  const RotaryEmbedding plain(config, 32, 1000);
  config.type = RopeType::kDynamic;
  config.factor = 2;
  const RotaryEmbedding dynamic(config, 32, 1000);
  EXPECT_EQ(angles(dynamic, 999, 1000).sin, angles(plain, 999, 1000).sin);
  // At twice the length the base is theta * (2 * 2 - 1)^(dim / (dim - 2)).
  RopeConfig grown;
  grown.theta = 10000 * std::pow(3.0, 32.0 / 30);
  const Angles a = angles(dynamic, 1999, 2000);
  const Angles b = angles(RotaryEmbedding(grown, 32, 1000), 1999, 2000);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(a.sin[i], b.sin[i], 1e-5);
}

// Llama 3.1: waves shorter than original / high_freq_factor are kept, longer than original / low_freq_factor
// are slowed down by the factor.
TEST(Rope, Llama3KeepsShortWavesAndSlowsLongOnes) {
  RopeConfig plain;
  plain.theta = 500000;
  RopeConfig config = variants()[2];
  const RotaryEmbedding rope(config, 128, 131072);
  const RotaryEmbedding before(plain, 128, 131072);
  const auto frequency = [](const RotaryEmbedding& of, std::size_t i) {
    return std::asin(static_cast<double>(angles(of, 1, 2).sin[i]));
  };
  for (std::size_t i = 1; i < 64; ++i) {
    const double ratio = frequency(before, i) / frequency(rope, i);
    const double wave = 2 * M_PI / std::pow(500000, -2.0 * static_cast<double>(i) / 128);
    if (wave < 8192.0 / 4) {
      EXPECT_NEAR(ratio, 1, 1e-3) << i;
    }
    if (wave > 8192) {
      EXPECT_NEAR(ratio, 8, 1e-2) << i;
    }
    EXPECT_GE(ratio, 1 - 1e-3);
    EXPECT_LE(ratio, 8 + 1e-2);
  }
}

TEST(Rope, YarnsAttentionFactor) {
  RopeConfig config = variants()[3];
  EXPECT_NEAR(RotaryEmbedding(config, 64, 1000).attention_factor(), 0.1 * std::log(4.0) + 1, 1e-6);
  config.mscale = config.mscale_all_dim = 0.707;  // DeepSeek: the scale is in the scores instead
  EXPECT_NEAR(RotaryEmbedding(config, 64, 1000).attention_factor(), 1, 1e-6);
  config.attention_factor = 1.25;
  EXPECT_NEAR(RotaryEmbedding(config, 64, 1000).attention_factor(), 1.25, 1e-6);
}

}  // namespace
}  // namespace tpsim::rank
