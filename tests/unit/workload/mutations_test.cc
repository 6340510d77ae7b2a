#include "tests/fuzz/mutations_test.h"

namespace tpsim::fuzz {
namespace {

INSTANTIATE_TEST_SUITE_P(All, Mutations, ::testing::ValuesIn(trace_targets().begin(), trace_targets().end()),
                         name_of);

}  // namespace
}  // namespace tpsim::fuzz
