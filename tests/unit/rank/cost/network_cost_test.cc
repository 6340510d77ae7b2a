// Collectives of several nodes against public measurements.
#include <gtest/gtest.h>

#include <cstdint>

#include "rank/cost/hardware.h"
#include "rank/cost/op_cost.h"

namespace tpsim::rank::network_cost_test {
namespace {

struct Measured {
  double bytes;
  double microseconds;
};

// all_reduce_perf (sums of floats, in place) of NCCL 2.30.4 on two nodes of 8 H200s, each with 8 BlueField-3
// of 400 Gb/s: the public document "Containerization NVIDIA Tools for RDMA Environments".
constexpr Measured kTwoNodes[] = {{4096, 44.2},      {16384, 53.8},     {262144, 63.4},   {524288, 79.9},
                                  {1 << 20, 77.2},   {1 << 21, 86.0},   {1 << 22, 105.6}, {1 << 23, 149.1},
                                  {1 << 24, 207.6},  {1 << 25, 277.0},  {1 << 26, 460.8}, {1 << 27, 747.7},
                                  {1 << 28, 1278.8}, {1 << 29, 2322.4}, {1 << 30, 4385.4}};

TEST(NetworkCost, AllReduceOfTwoNodesIsAsMeasured) {
  const OperatorCosts costs(load_hardware("h200-sxm"));
  for (const auto& [bytes, measured] : kTwoNodes) {
    const double seconds = costs.all_reduce(bytes, 16).seconds;
    EXPECT_NEAR(seconds * 1e6, measured, 0.2 * measured) << bytes;
  }
}

TEST(NetworkCost, ExchangesAreAsDeepEpStates) {
  // Of the H800 (README.md of its first release): 128 tokens of 7,168 in 8 bit to 8 experts, for low latency.
  proto::HardwareProfile h800 = load_hardware("h100-sxm");
  h800.set_link_bandwidth(200e9);
  const OperatorCosts costs(h800);
  constexpr Measured kDispatch[] = {{16, 118}, {32, 155}, {64, 173}, {128, 192}, {256, 194}};
  for (const auto& [ranks, measured] : kDispatch) {
    const double nodes = ranks / 8, bytes = 128 * 8 * 7168.0 * (1 + 4.0 / 128);
    const double seconds = costs
                               .expert_exchange(bytes * (ranks - 1) / ranks, bytes * (nodes - 1) / nodes,
                                                static_cast<std::uint32_t>(nodes), true)
                               .seconds;
    EXPECT_NEAR(seconds * 1e6, measured, 0.2 * measured) << ranks;
  }
}

TEST(NetworkCost, OneNodeHasNone) {
  const OperatorCosts costs(load_hardware("h100-sxm"));
  EXPECT_EQ(costs.nodes(8), 1);
  EXPECT_EQ(costs.all_reduce_network(1e6, 8), 0);
  EXPECT_TRUE(costs.uses_custom_all_reduce(1e6, 8));
  EXPECT_EQ(costs.nodes(32), 4);
  EXPECT_DOUBLE_EQ(costs.all_reduce_network(1e6, 32), 2 * 1e6 * 3 / 32);
  EXPECT_EQ(OperatorCosts(load_hardware("gb200")).nodes(72), 1);
}

TEST(NetworkCost, MoreBytesAndMoreNodesTakeLonger) {
  const OperatorCosts costs(load_hardware("h100-sxm"));
  for (const std::uint32_t gpus : {16, 32, 64}) {
    double before = 0;
    for (double bytes = 1024; bytes < 1e9; bytes *= 2) {
      const double now = costs.all_reduce(bytes, gpus).seconds;
      EXPECT_GE(now, before);
      EXPECT_GE(now, costs.all_reduce(bytes, gpus / 2).seconds);
      before = now;
    }
  }
}

}  // namespace
}  // namespace tpsim::rank::network_cost_test
