// The fuzz targets of a room (TPSIM_ROOM_TARGETS names the function that lists them) on their corpora and on
// 20,000 inputs near them each: one of its unit tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "proto/base/error.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/mutate.h"
#include "tests/unit/fewer_operations.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::fuzz {
namespace {

class Mutations : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(Mutations, AreReadOrRefused) {
  const std::filesystem::path folder =
      std::filesystem::path(TPSIM_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam().name;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  ASSERT_FALSE(paths.empty());
  std::vector<std::string> seeds;
  for (const std::filesystem::path& path : paths) {
    seeds.push_back(testing::read_file(path));
    ASSERT_NO_THROW(GetParam().run(seeds.back())) << path;
  }
  Mutator mutator(std::move(seeds), 1);
  // The sanitizers' build has tpsim_fuzz_replay besides.
  constexpr int kInputs = kFewerOperations ? 4'000 : 20'000;
  for (int i = 0; i < kInputs; ++i) {
    const std::string input = mutator.next();
    ASSERT_NO_THROW(GetParam().run(input)) << "input " << i << ": " << in_quotes(input);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mutations,
                         ::testing::ValuesIn(TPSIM_ROOM_TARGETS().begin(), TPSIM_ROOM_TARGETS().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace

}  // namespace tpsim::fuzz
