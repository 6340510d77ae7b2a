#include "rank/weights/dummy_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>

namespace tpsim::rank {
namespace {

constexpr const char* kName = "model.layers.3.self_attn.q_proj.weight";

std::vector<float> values(const DummyWeights& weights, const std::string& name, std::uint64_t first,
                          std::size_t count) {
  std::vector<float> out(count);
  weights.read(name, first, count, out.data());
  return out;
}

double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

TEST(DummyWeights, EveryRangeReadsTheSameModel) {
  const DummyWeights weights(7), again(7);
  constexpr std::uint64_t kSize = 5000;
  // Ranges around 0, and around 2^32, where fused experts of large models get to.
  for (const std::uint64_t origin : {std::uint64_t{0}, (std::uint64_t{1} << 32) - kSize / 2}) {
    for (const char* name : {kName, "model.norm.weight", "model.layers.0.self_attn.q_proj.bias"}) {
      const std::vector<float> whole = values(weights, name, origin, kSize);
      std::mt19937_64 random(1);
      for (int round = 0; round < 100; ++round) {
        const std::uint64_t first = random() % kSize;
        const std::uint64_t count = random() % (kSize - first + 1);
        const std::vector<float> part = values(again, name, origin + first, count);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
      }
    }
  }
}

// Known values: a model must not change with a compiler, a machine or a version of tpsim.
TEST(DummyWeights, ValuesAreTheSameForEver) {
  const DummyWeights weights(42);
  EXPECT_EQ(values(weights, kName, 0, 4),
            (std::vector<float>{-0x1.34p-7F, -0x1.5p-9F, 0x1.74p-7F, -0x1.42p-6F}));
  EXPECT_EQ(values(weights, kName, (std::uint64_t{1} << 32) + 5, 2),
            (std::vector<float>{-0x1.d8p-8F, 0x1.98p-8F}));
  EXPECT_EQ(values(weights, "model.norm.weight", 0, 4),
            (std::vector<float>{0x1.fp-1F, 0x1.04p+0F, 0x1.0cp+0F, 0x1.e8p-1F}));
}

TEST(DummyWeights, ProjectionsAreUniform) {
  const std::vector<float> sample = values(DummyWeights(1), kName, 0, 1 << 20);
  double sum = 0, squares = 0;
  std::map<float, int> counts;
  for (const float value : sample) {
    sum += value;
    squares += double{value} * value;
    ++counts[value];
  }
  const double n = static_cast<double>(sample.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.018 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.01804, 0.0001);
  ASSERT_EQ(counts.size(), 256U);
  double chi_squared = 0;
  for (const auto& [value, count] : counts) {
    EXPECT_EQ(counts.count(-value), 1U);
    chi_squared += (count - n / 256) * (count - n / 256) / (n / 256);
  }
  // 255 degrees of freedom: standard deviation 22.6.
  EXPECT_NEAR(chi_squared, 255, 6 * 22.6);
}

TEST(DummyWeights, NeighboursRowsTensorsAndSeedsAreIndependent) {
  constexpr std::size_t kCount = 1 << 18;
  const std::vector<float> base = values(DummyWeights(1), kName, 0, kCount);
  const double bound = 5 / std::sqrt(static_cast<double>(kCount));
  for (const std::uint64_t lag : {1, 2, 3, 4, 64, 2048, 5632, 1 << 16, 1 << 20, 1 << 24}) {
    EXPECT_LT(std::abs(correlation(base, values(DummyWeights(1), kName, lag, kCount))), bound) << lag;
  }
  EXPECT_LT(std::abs(correlation(base, values(DummyWeights(1), kName, std::uint64_t{1} << 32, kCount))),
            bound);
  EXPECT_LT(std::abs(correlation(base, values(DummyWeights(2), kName, 0, kCount))), bound);
  for (int layer = 0; layer < 40; ++layer) {
    if (layer == 3) continue;
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.q_proj.weight";
    EXPECT_LT(std::abs(correlation(base, values(DummyWeights(1), name, 0, kCount))), bound) << name;
  }
}

TEST(DummyWeights, BiasesAndSinksAreSmallNormsNearOne) {
  const DummyWeights weights(1), gemma(1, true);
  for (const char* name : {"a.q_proj.bias", "a.mlp.gate.e_score_correction_bias", "a.experts.down_proj_bias",
                           "a.self_attn.sinks"}) {
    for (const float value : values(weights, name, 0, 1000)) ASSERT_LT(std::abs(value), 0.008F) << name;
  }
  for (const char* name : {"model.norm.weight", "a.input_layernorm.weight", "a.q_norm.weight",
                           "a.self_attn.kv_a_layernorm.weight", "a.pre_feedforward_layernorm.weight"}) {
    double sum = 0;
    for (const float value : values(weights, name, 0, 4096)) {
      ASSERT_NEAR(value, 1, 0.0625) << name;
      sum += value;
    }
    EXPECT_NEAR(sum / 4096, 1, 0.008);
    for (const float value : values(gemma, name, 0, 1000)) ASSERT_NEAR(value, 0, 0.0313) << name;
  }
  EXPECT_EQ(values(weights, kName, 0, 100), values(gemma, kName, 0, 100));
}

TEST(DummyWeights, Bf16AndFp16HoldEveryValue) {
  const DummyWeights weights(3), gemma(3, true);
  for (const char* name : {kName, "x.bias", "x.norm.weight"}) {
    for (const DummyWeights* source : {&weights, &gemma}) {
      for (const float value : values(*source, name, 0, 20000)) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value) & 0xffff, 0U);
        ASSERT_GE(std::abs(value), 0x1p-15F);  // fp16: 11 bits down to 2^-14, 10 below
      }
    }
  }
}

TEST(DummyWeights, HasEverything) {
  const DummyWeights weights(1);
  EXPECT_TRUE(weights.has("anything"));
  EXPECT_NO_THROW(weights.require("anything", {1, 2, 3}));
  EXPECT_NO_THROW(weights.read("anything", 0, 0, nullptr));
}

}  // namespace
}  // namespace tpsim::rank
