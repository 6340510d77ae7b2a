#include "rank/cost/pass_clock.h"

#include <gtest/gtest.h>

namespace tpsim::rank {
namespace {

PassClock toy_clock() {
  proto::HardwareProfile profile;
  profile.set_kernel_launch_seconds(4);
  profile.set_graph_kernel_gap_seconds(0.5);
  profile.set_graph_replay_seconds(12);
  return PassClock(profile);
}

TEST(PassClock, APassTakesAsLongAsTheSlowerOfDeviceAndHost) {
  const IssuedTime by_device = toy_clock().eager(100, 10, 10 * toy_clock().launch_seconds());
  EXPECT_EQ(by_device.device, 105);
  EXPECT_EQ(by_device.issue, 40);
  EXPECT_EQ(by_device.seconds(), 105);
  EXPECT_EQ(toy_clock().eager(1, 10, 10 * toy_clock().launch_seconds()).seconds(), 40);
}

// What one part's host lags behind another's device makes up for, unless the host waits between them.
TEST(PassClock, PartsOverlap) {
  const IssuedTime device = toy_clock().eager(100, 0, 10), host = toy_clock().eager(10, 0, 60);
  EXPECT_EQ((device + host).seconds(), 110);
  EXPECT_EQ(device.seconds() + host.seconds(), 160);
}

TEST(PassClock, AGraphIsOneLaunchAndAGapForEachKernel) { EXPECT_EQ(toy_clock().captured(10), 17); }

}  // namespace
}  // namespace tpsim::rank
