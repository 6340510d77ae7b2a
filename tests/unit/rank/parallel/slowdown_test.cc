#include <gtest/gtest.h>

#include "proto/base/error.h"
#include "rank/parallel/local_ranks.h"

namespace tpsim::rank {
namespace {

TEST(Slowdown, OneFactorPerRank) {
  const std::vector<std::string> values = {"3:1.2", "0:2"};
  EXPECT_EQ(parse_rank_slowdowns(values, 4), (std::vector<double>{2, 1, 1, 1.2}));
  EXPECT_EQ(parse_rank_slowdowns({}, 2), (std::vector<double>{1, 1}));
}

TEST(Slowdown, RefusesEverythingElse) {
  for (const char* value : {"", "3", "3:", ":1.2", "3:1.2x", "-1:2", "3:-1", "3:0.5", "3:nan", "3:inf",
                            "4:1.2", "3 :1.2", "99999999999:2", "1.5:2", "3:1,2"}) {
    const std::vector<std::string> values = {value};
    try {
      parse_rank_slowdowns(values, 4);
      ADD_FAILURE() << value;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("--rank-slowdown "), 0u) << error.what();
    }
  }
  const std::vector<std::string> twice = {"1:2", "1:3"};
  EXPECT_THROW(parse_rank_slowdowns(twice, 4), UserError);
}

}  // namespace
}  // namespace tpsim::rank
