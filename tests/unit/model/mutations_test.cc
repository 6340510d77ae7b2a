#include "tests/fuzz/mutations_test.h"

namespace tpsim::fuzz {
namespace {

INSTANTIATE_TEST_SUITE_P(All, Mutations, ::testing::ValuesIn(model_targets().begin(), model_targets().end()),
                         name_of);

}  // namespace
}  // namespace tpsim::fuzz
