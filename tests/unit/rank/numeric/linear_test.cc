// Linear layers, threads and vector operations.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "proto/base/number_format.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

std::vector<float> random_vector(std::mt19937_64& random, std::size_t size, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

PackedMatrix pack(WeightType type, const std::vector<float>& w, std::uint32_t n, std::uint32_t k,
                  std::uint32_t first = 0, std::uint32_t count = UINT32_MAX) {
  return PackedMatrix(type, std::min(count, n), k, [&](std::uint32_t i, float* out) {
    std::copy_n(w.begin() + static_cast<std::ptrdiff_t>((first + i) * k), k, out);
  });
}

TEST(PackedMatrix, AgreesWithSumsInDoublePrecision) {
  std::mt19937_64 random(1);
  ThreadPool pool(2);
  for (int round = 0; round < 60; ++round) {
    const auto n = static_cast<std::uint32_t>(1 + random() % 100);
    const auto k = static_cast<std::uint32_t>(1 + random() % 300);
    const auto rows = static_cast<std::uint32_t>(1 + random() % 40);
    const WeightType type = round % 2 == 0 ? WeightType::kFp32 : WeightType::kBf16;
    std::vector<float> w = random_vector(random, std::size_t{n} * k);
    if (type == WeightType::kBf16) {
      for (float& value : w) value = from_bf16(to_bf16(value));
    }
    const std::uint32_t x_stride = k + static_cast<std::uint32_t>(random() % 5);
    const std::uint32_t y_stride = n + static_cast<std::uint32_t>(random() % 5);
    const std::vector<float> x = random_vector(random, std::size_t{rows} * x_stride);
    const std::vector<float> bias = random_vector(random, n);
    const PackedMatrix matrix = pack(type, w, n, k);
    std::vector<float> y(std::size_t{rows} * y_stride, 777);
    matrix.multiply(x.data(), rows, x_stride, y.data(), y_stride, round % 3 == 0 ? bias.data() : nullptr,
                    pool);
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (std::uint32_t j = 0; j < n; ++j) {
        double sum = round % 3 == 0 ? bias[j] : 0;
        double size = std::fabs(sum);
        for (std::uint32_t i = 0; i < k; ++i) {
          sum += double{x[r * x_stride + i]} * w[j * k + i];
          size += std::fabs(double{x[r * x_stride + i]} * w[j * k + i]);
        }
        ASSERT_NEAR(y[r * y_stride + j], sum, size * 1e-6);
      }
      for (std::uint32_t j = n; j < y_stride; ++j)
        ASSERT_EQ(y[r * y_stride + j], 777) << "beyond the columns";
    }
    std::vector<float> row(k);
    matrix.row(n - 1, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), w.end() - k));
  }
}

// The same bits alone and in a batch, with any number of threads, whole and as a rank's part of the columns.
TEST(PackedMatrix, BitsDoNotDependOnBatchThreadsOrShards) {
  std::mt19937_64 random(2);
  constexpr std::uint32_t kN = 200;
  constexpr std::uint32_t kK = 333;
  constexpr std::uint32_t kRows = 37;
  const std::vector<float> w = random_vector(random, kN * kK);
  const std::vector<float> x = random_vector(random, kRows * kK);
  for (const WeightType type : {WeightType::kFp32, WeightType::kBf16}) {
    const PackedMatrix whole = pack(type, w, kN, kK);
    ThreadPool one(1);
    ThreadPool three(3);
    std::vector<float> y(kRows * kN);
    whole.multiply(x.data(), kRows, kK, y.data(), kN, nullptr, one);
    std::vector<float> other(kRows * kN);
    whole.multiply(x.data(), kRows, kK, other.data(), kN, nullptr, three);
    EXPECT_EQ(y, other);
    for (std::uint32_t r = 0; r < kRows; ++r)
      whole.multiply(x.data() + r * kK, 1, kK, other.data() + r * kN, kN, nullptr, three);
    EXPECT_EQ(y, other);
    for (std::uint32_t part = 0; part < 8; ++part) {
      const PackedMatrix shard = pack(type, w, kN, kK, part * 25, 25);
      shard.multiply(x.data(), kRows, kK, other.data() + part * 25, kN, nullptr, three);
    }
    EXPECT_EQ(y, other);
  }
}

TEST(PackedMatrix, KeepsWeightsAtTheirWidth) {
  std::mt19937_64 random(3);
  const std::vector<float> w = random_vector(random, 64 * 100);
  EXPECT_EQ(pack(WeightType::kBf16, w, 64, 100).bytes(), 64U * 100 * 2);
  EXPECT_EQ(pack(WeightType::kFp32, w, 64, 100).bytes(), 64U * 100 * 4);
}

TEST(ThreadPool, CallsEachIndexOnceAndPassesOnExceptions) {
  for (const std::uint32_t threads : {1U, 2U, 5U}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::uint32_t count : {0U, 1U, 3U, 1000U}) {
      std::vector<std::atomic<int>> calls(count);
      pool.parallel_for(count, [&](std::uint32_t i, std::uint32_t thread) {
        ASSERT_LT(thread, threads);
        ++calls[i];
      });
      for (const auto& call : calls) ASSERT_EQ(call, 1);
    }
    EXPECT_THROW(pool.parallel_for(50,
                                   [](std::uint32_t i, std::uint32_t) {
                                     if (i == 20) throw std::runtime_error("x");
                                   }),
                 std::runtime_error);
    std::atomic<int> after{0};
    pool.parallel_for(10, [&](std::uint32_t, std::uint32_t) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

// Each operation on each length around the vector width, at every alignment: as in fp64, and the same bits.
TEST(VectorOps, AgreeWithDoublePrecisionWhereverTheyLie) {
  std::mt19937_64 random(4);
  for (std::uint32_t size = 1; size < 70; ++size) {
    const std::vector<float> x = random_vector(random, size, 3);
    const std::vector<float> w = random_vector(random, size);
    std::vector<std::vector<float>> first;
    for (std::uint32_t shift = 0; shift < 17; ++shift) {
      std::vector<float> a(size + 32, 55);
      std::vector<float> b(size + 32, 55);
      std::vector<float> out(size + 32, 55);
      std::copy(x.begin(), x.end(), a.begin() + shift);
      std::copy(w.begin(), w.end(), b.begin() + shift);
      std::vector<std::vector<float>> results;
      const auto keep = [&] {
        for (std::uint32_t i = 0; i < out.size(); ++i)
          if (i < shift || i >= shift + size) {
            ASSERT_EQ(out[i], 55) << "wrote beyond the end";
          }
        results.emplace_back(out.begin() + shift, out.begin() + shift + size);
      };
      rms_norm(a.data() + shift, size, b.data() + shift, 1, 1e-6F, out.data() + shift);
      keep();
      silu_and_mul(a.data() + shift, b.data() + shift, size, out.data() + shift);
      keep();
      gelu_tanh_and_mul(a.data() + shift, b.data() + shift, size, out.data() + shift);
      keep();
      gpt_oss_swiglu(a.data() + shift, b.data() + shift, size, out.data() + shift);
      keep();
      std::copy(x.begin(), x.end(), out.begin() + shift);
      soft_cap(out.data() + shift, size, 2.5F);
      keep();
      std::copy(x.begin(), x.end(), out.begin() + shift);
      softmax(out.data() + shift, size);
      keep();
      if (shift == 0) {
        first = results;
      } else {
        ASSERT_EQ(results, first) << "size " << size << " at " << shift;
      }
    }
    double square = 0;
    double sum = 0;
    const double largest = *std::max_element(x.begin(), x.end());
    for (const float v : x) {
      square += double{v} * v;
      sum += std::exp(v - largest);
    }
    for (std::uint32_t i = 0; i < size; ++i) {
      const double g = x[i];
      const double u = w[i];
      const double gate = std::min(g, 7.0);
      const double wanted[] = {
          g / std::sqrt(square / size + 1e-6) * (1 + u),
          g / (1 + std::exp(-g)) * u,
          0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u,
          gate / (1 + std::exp(-1.702 * gate)) * (std::clamp(u, -7.0, 7.0) + 1),
          2.5 * std::tanh(g / 2.5),
          std::exp(g - largest) / sum};
      for (std::size_t k = 0; k < std::size(wanted); ++k)
        ASSERT_NEAR(first[k][i], wanted[k], 2e-6 * std::max(1.0, std::fabs(wanted[k]))) << k;
    }
  }
}

TEST(VectorOps, ExtremesDoNotOverflow) {
  std::vector<float> gate = {-1000, 1000, -88, 88, 0};
  const std::vector<float> one(5, 1);
  std::vector<float> out(5);
  silu_and_mul(gate.data(), one.data(), 5, out.data());
  EXPECT_NEAR(out[0], 0, 1e-30);
  EXPECT_EQ(out[1], 1000);
  for (const float v : out) EXPECT_TRUE(std::isfinite(v));
  softmax(gate.data(), 5);
  EXPECT_EQ(gate[1], 1);
  EXPECT_EQ(gate[0], 0);
  std::vector<float> bad = {std::nanf(""), 1};
  soft_cap(bad.data(), 2, 30);
  EXPECT_TRUE(std::isnan(bad[0]));
}

}  // namespace
}  // namespace tpsim::rank
