#include <gtest/gtest.h>

#include "launch/deployment/host.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

TEST(ServedBefore, IsAListOfLoads) {
  EXPECT_TRUE(parse_served_before("--served-before", "warmup").empty());
  const auto loads =
      parse_served_before("--served-before", "warmup,closed:1024:256:16:48,burst:512:64:32,azure:0:60:1");
  ASSERT_EQ(loads.size(), 3U);
  EXPECT_EQ(loads[0].input, 1024U);
  EXPECT_EQ(loads[0].max_requests, 16U);
  EXPECT_EQ(loads[1].input, 512U);
  EXPECT_EQ(loads[1].max_requests, 32U);
  EXPECT_EQ(loads[2].input, 0U);  // of all sizes
}

TEST(ServedBefore, IsRefusedInOneSentence) {
  for (const char* text :
       {"", "warm", "closed:1:2:3", "closed:0:2:3:4", "burst:1:2:x", ":1", "3:1:2", "warmup,"}) {
    try {
      parse_served_before("--served-before", text);
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what())
                    .find("--served-before " + std::string(text) + ": must be warmup, or loads"),
                0U);
    }
  }
}

}  // namespace
}  // namespace tpsim::launch
