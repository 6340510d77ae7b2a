#include "tests/fuzz/mutations_test.h"

namespace tpsim::fuzz {
namespace {

INSTANTIATE_TEST_SUITE_P(All, Mutations,
                         ::testing::ValuesIn(weights_targets().begin(), weights_targets().end()), name_of);

}  // namespace
}  // namespace tpsim::fuzz
