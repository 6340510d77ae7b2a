#include "launch/deployment/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch::nodes_test {
namespace {

ServerArgs asks(std::uint32_t tp, std::uint32_t pp, std::optional<std::uint32_t> nodes = std::nullopt) {
  ServerArgs args;
  args.tp_size = tp;
  args.parallel.pp_size = pp;
  args.parallel.nnodes = nodes;
  return args;
}

std::string refused(const ServerArgs& args, const char* gpu) {
  try {
    nodes_of(args, rank::load_hardware(gpu));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Nodes, AsFewAsHaveRoom) {
  const proto::HardwareProfile h100 = rank::load_hardware("h100-sxm");
  EXPECT_EQ(nodes_of(asks(8, 1), h100), 1);
  EXPECT_EQ(nodes_of(asks(16, 1), h100), 2);
  EXPECT_EQ(nodes_of(asks(4, 4), h100), 2);
  EXPECT_EQ(nodes_of(asks(8, 3), h100), 3);
  EXPECT_EQ(nodes_of(asks(4, 3), h100), 3);  // two would share a stage and a half
  EXPECT_EQ(nodes_of(asks(64, 1), rank::load_hardware("gb200")), 1);
}

TEST(Nodes, StagesStandAsSglangPlacesThem) {
  proto::HardwareProfile h100 = rank::load_hardware("h100-sxm");
  Parallel two;
  place_on_nodes(asks(4, 4), h100, two);
  EXPECT_EQ(h100.gpus_per_node(), 4);
  std::vector<bool> crosses;
  for (std::uint32_t stage = 0; stage < 4; ++stage)
    crosses.push_back(two.layout.sends_over_network(stage, 4));
  EXPECT_EQ(crosses, (std::vector<bool>{false, true, false, true}));

  h100 = rank::load_hardware("h100-sxm");
  Parallel four;
  place_on_nodes(asks(16, 2), h100, four);
  EXPECT_EQ(four.layout.nodes, 4);
  EXPECT_EQ(h100.gpus_per_node(), 8);
  EXPECT_TRUE(four.layout.sends_over_network(0, 2));
}

TEST(Nodes, WhatCannotStandIsRefused) {
  EXPECT_THAT(refused(asks(8, 1, 3), "h100-sxm"), testing::HasSubstr("--nnodes 3"));
  EXPECT_THAT(refused(asks(32, 1, 2), "h100-sxm"), testing::HasSubstr("use at least 4 nodes"));
  EXPECT_THAT(refused(asks(16, 1), "l40s"), testing::HasSubstr("\"network\""));
}

}  // namespace
}  // namespace tpsim::launch::nodes_test
