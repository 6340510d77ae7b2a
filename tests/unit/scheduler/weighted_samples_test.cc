#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "scheduler/metrics.h"

namespace tpsim::scheduler {
namespace {

// The definition: interpolate linearly between the closest ranks of the ordered values.
double plain_percentile(const std::vector<double>& values, double q) {
  const double position = static_cast<double>(values.size() - 1) * q / 100;
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (position - static_cast<double>(low));
}

TEST(WeightedSamples, PercentilesEqualThoseOfTheExpandedList) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    WeightedSamples samples;
    std::vector<double> plain;
    const int groups = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < groups; ++i) {
      const double value = static_cast<double>(random() % 1000) / 7;
      const auto count = 1 + random() % 5;
      samples.add(value, count);
      plain.insert(plain.end(), count, value);
    }
    samples.seal();
    std::sort(plain.begin(), plain.end());
    ASSERT_EQ(samples.count(), plain.size());
    for (const double q : {0.0, 1.0, 50.0, 95.0, 99.0, 100.0}) {
      EXPECT_NEAR(samples.percentile(q), plain_percentile(plain, q), 1e-9) << "q " << q << " round " << round;
    }
    double sum = 0;
    for (const double value : plain) sum += value;
    EXPECT_NEAR(samples.mean(), sum / static_cast<double>(plain.size()), 1e-9);
  }
}

TEST(WeightedSamples, ManyOfEitherSignAndAnyMagnitudeAreSorted) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> exponent(-8, 8);
  WeightedSamples samples;
  std::vector<double> plain;
  for (int i = 0; i < 20'000; ++i) {
    const double magnitude = std::pow(10, exponent(random));
    const double value = i % 100 == 0 ? 0.0 : i % 7 == 0 ? std::floor(magnitude) : magnitude;
    plain.push_back(random() % 3 == 0 ? -value : value);
    samples.add(plain.back(), 1);
  }
  samples.seal();
  std::sort(plain.begin(), plain.end());
  for (int q = 0; q <= 100; ++q) ASSERT_DOUBLE_EQ(samples.percentile(q), plain_percentile(plain, q));
}

// A sum ends in the digits of its order: that of groups of equal values and other counts is std::sort's.
TEST(WeightedSamples, MeansAreSumsInTheOrderOfTheSort) {
  struct Group {
    double value;
    std::uint64_t count;
  };
  std::mt19937_64 random(5);
  for (const std::uint64_t values : {50U, 1U << 30}) {  // many are equal; hardly any
    WeightedSamples samples;
    std::vector<Group> groups;
    std::uint64_t last = values;
    for (int i = 0; i < 5000; ++i) {
      std::uint64_t drawn = random() % values;
      if (drawn == last) drawn = (drawn + 1) % values;  // else it would be put to the one before
      last = drawn;
      groups.push_back({static_cast<double>(drawn) / 3, 1 + random() % 3});
      samples.add(groups.back().value, groups.back().count);
    }
    samples.seal();
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.value < b.value; });
    double sum = 0;
    for (const Group& group : groups) sum += group.value * static_cast<double>(group.count);
    EXPECT_EQ(samples.mean(), sum / static_cast<double>(samples.count())) << values;
  }
}

TEST(WeightedSamples, EmptyIsZero) {
  WeightedSamples samples;
  samples.seal();
  EXPECT_EQ(samples.percentile(50), 0);
  EXPECT_EQ(samples.mean(), 0);
  EXPECT_EQ(samples.max(), 0);
}

TEST(WeightedSamples, HistogramHoldsEverySample) {
  WeightedSamples samples;
  for (const double ms : {1.0, 2.0, 50.0, 900.0, 12345.0}) samples.add(ms / 1e3, 3);
  samples.seal();
  proto::Histogram histogram;
  samples.histogram(1e3, histogram);
  double sum = 0;
  for (const double share : histogram.fraction()) sum += share;
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_GT(histogram.upper_ms(histogram.upper_ms_size() - 1), 12345.0);
}

// Of few groups kept against the list of all samples.
TEST(WeightedSamples, CompressedOnesKeepMeansAndAreWithinTheirErrorElsewhere) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20; ++round) {
    WeightedSamples samples(1024);
    std::lognormal_distribution<double> draw(-2, 0.2 * round);
    std::vector<double> plain;
    for (int i = 0; i < 20000; ++i) {
      const double value = i % 7 == 0 ? 0 : draw(random);
      const std::uint64_t count = 1 + random() % 3;
      samples.add(value, count);
      plain.insert(plain.end(), count, value);
    }
    samples.seal();
    std::sort(plain.begin(), plain.end());
    // Equal values alone are put together and stay exact.
    ASSERT_EQ(samples.compressed(), round > 0);
    ASSERT_EQ(samples.count(), plain.size());
    double sum = 0, squares = 0;
    for (const double value : plain) sum += value;
    const double mean = sum / static_cast<double>(plain.size());
    for (const double value : plain) squares += (value - mean) * (value - mean);
    EXPECT_NEAR(samples.mean() / mean, 1, 1e-12);
    EXPECT_NEAR(samples.stddev() / std::sqrt(squares / static_cast<double>(plain.size())), 1, 1e-9);
    EXPECT_EQ(samples.max(), plain.back());
    for (double q = 0; q <= 100; q += 0.5) {
      const double exact = plain_percentile(plain, q);
      EXPECT_NEAR(samples.percentile(q), exact, exact * WeightedSamples::kPercentileError) << q;
    }
    proto::Histogram histogram;
    samples.histogram(1e3, histogram);
    double all = 0;
    for (const double share : histogram.fraction()) all += share;
    EXPECT_NEAR(all, 1, 1e-12);
  }
}

// A load that is never served in time: billions of samples of weeks.
TEST(WeightedSamples, HoldWeeks) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> draw(0, 8e6);
  WeightedSamples samples(1024);
  double sum = 0, squares = 0;
  constexpr int kValues = 5000;
  for (int i = 0; i < kValues; ++i) {
    const double value = draw(random);
    samples.add(value, 1U << 20);
    sum += value;
    squares += value * value;
  }
  samples.seal();
  ASSERT_TRUE(samples.compressed());
  const double mean = sum / kValues;
  EXPECT_NEAR(samples.mean() / mean, 1, 1e-12);
  EXPECT_NEAR(samples.stddev() / std::sqrt(squares / kValues - mean * mean), 1, 1e-9);
}

// Shared out and put together again, in any order: the same to the last digit, compressed or not.
TEST(WeightedSamples, HaveNoOrder) {
  std::mt19937_64 random(6);
  std::lognormal_distribution<double> draw(-3, 0.5);
  for (const std::size_t values : {300, 700, 5000}) {  // of 512 that may differ
    std::vector<double> all(values);
    for (double& value : all) value = draw(random);
    std::vector<double> first;
    for (const std::size_t parts : {1, 2, 7}) {
      std::vector<WeightedSamples> shared(parts, WeightedSamples(1024));
      for (int time = 0; time < 3; ++time) {
        std::shuffle(all.begin(), all.end(), random);
        for (const double value : all) shared[random() % parts].add(value, 2);
      }
      WeightedSamples samples(1024);
      for (WeightedSamples& part : shared) part.settle(values > 512);
      samples.settle(values > 512);
      for (const WeightedSamples& part : shared) samples.merge(part);
      samples.seal();
      EXPECT_EQ(samples.compressed(), values > 512);
      EXPECT_EQ(samples.count(), 6 * values);
      std::vector<double> figures = {samples.mean(), samples.stddev(), samples.max()};
      for (double q = 0; q <= 100; q += 0.5) figures.push_back(samples.percentile(q));
      if (first.empty()) first = figures;
      EXPECT_EQ(figures, first) << parts << " parts of " << values;
    }
  }
}

}  // namespace
}  // namespace tpsim::scheduler
