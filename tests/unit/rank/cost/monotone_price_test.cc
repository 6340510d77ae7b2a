#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

TEST(MonotonePrice, WithoutPointsEveryPriceStays) {
  const MonotonePrice price;
  EXPECT_EQ(price(1, 5), 5);
  EXPECT_EQ(price(100, 3), 3);
}

TEST(MonotonePrice, PricesThatFallShareTheirMean) {
  const std::vector<double> points = {1, 2, 4, 8};
  const std::vector<double> seconds = {1, 6, 4, 9};
  std::size_t next = 0;
  const MonotonePrice price(points, [&](double) { return seconds[next++]; });
  EXPECT_EQ(price(1, 1), 1);
  EXPECT_EQ(price(2, 6), 5);
  EXPECT_EQ(price(4, 4), 5);
  EXPECT_EQ(price(8, 9), 9);
  EXPECT_EQ(price(3, 100), 5);  // between two points no dearer than the next
  EXPECT_EQ(price(6, 7), 7);
  EXPECT_EQ(price(6, 2), 5);
  EXPECT_EQ(price(0.5, 3), 1);   // no dearer than the first
  EXPECT_EQ(price(16, 20), 20);  // beyond the last its own, if that is more
  EXPECT_EQ(price(16, 2), 9);
}

TEST(MonotonePrice, WhatRisesStaysAsItIs) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> points, seconds;
    for (double at = 1, cost = 1; points.size() < 12; at *= 1.5, cost += random() % 4) {
      points.push_back(at);
      seconds.push_back(cost);
    }
    std::size_t next = 0;
    const MonotonePrice price(points, [&](double) { return seconds[next++]; });
    for (std::size_t i = 0; i < points.size(); ++i) EXPECT_EQ(price(points[i], seconds[i]), seconds[i]);
  }
}

TEST(MonotonePrice, NeverFallsFromPointToPoint) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> points;
    for (double at = 1; points.size() < 1 + random() % 12; at += 1 + random() % 5) points.push_back(at);
    const auto raw = [](double at) { return 1 + std::fmod(at * 7.3, 11); };
    const MonotonePrice price(points, raw);
    double before = 0;
    for (const double point : points) {
      const double now = price(point, raw(point));
      EXPECT_GE(now, before);
      before = now;
    }
  }
}

TEST(MonotonePrices, AShapeIsPricedOnce) {
  MonotonePrices prices;
  int calls = 0;
  const std::vector<double> points = {1, 2};
  const auto price = [&](double at) { return ++calls, at; };
  for (int round = 0; round < 3; ++round) prices.of({1, 2, 3}, points, price);
  EXPECT_EQ(calls, 2);
  prices.of({1, 2, 4}, points, price);
  EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace tpsim::rank
