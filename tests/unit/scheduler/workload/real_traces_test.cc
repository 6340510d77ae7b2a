// The three public traces, where ../shared/data holds them.
#include <gtest/gtest.h>

#include <filesystem>

#include "scheduler/workload/statistics.h"
#include "scheduler/workload/trace_reader.h"
#include "scheduler/workload/trace_writer.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {
namespace {

struct RealTrace {
  const char* file;
  const char* format;
  std::uint64_t requests, input_tokens, output_tokens;
  double duration;
};

// Counted with another program.
constexpr RealTrace kTraces[] = {
    {"mooncake_conversation.jsonl", "mooncake", 12031, 144'793'823, 4'122'048, 3536.999},
    {"azure_2023_conv.csv", "azure", 19366, 22'361'870, 4'088'665, 3501.721937},
    {"azure_2023_code.csv", "azure", 8819, 18'059'974, 245'896, 3435.948056},
};

class RealTraces : public ::testing::TestWithParam<RealTrace> {};

TEST_P(RealTraces, LoadWhole) {
  const std::filesystem::path path =
      std::filesystem::path(TPSIM_SOURCE_DIR) / "../shared/data/traces" / GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const Workload workload = read_trace(path);
  const WorkloadStatistics statistics = describe(WorkloadView(workload), {}, 10);
  EXPECT_EQ(workload.format, GetParam().format);
  EXPECT_EQ(statistics.requests, GetParam().requests);
  EXPECT_EQ(statistics.input_tokens, GetParam().input_tokens);
  EXPECT_EQ(statistics.output_tokens, GetParam().output_tokens);
  EXPECT_DOUBLE_EQ(statistics.duration, GetParam().duration);
  for (const std::string& format : {std::string("tpsim"), workload.format}) {
    EXPECT_TRUE(read_trace(format_trace(workload, format), "t").requests == workload.requests) << format;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealTraces, ::testing::ValuesIn(kTraces), [](const auto& info) {
  return std::filesystem::path(info.param.file).stem().string();
});

TEST(RealTraces, BestHitRateOfMooncakeInItsOwnBlocks) {
  const std::filesystem::path path =
      std::filesystem::path(TPSIM_SOURCE_DIR) / "../shared/data/traces/mooncake_conversation.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const std::uint32_t page_sizes[] = {512};
  // Counted with another program over sets of hashed block lists.
  EXPECT_EQ(describe(WorkloadInMemory(read_trace(path)), page_sizes, 1).best_hit_rates[0].hit_tokens,
            54'063'104u);
}

}  // namespace
}  // namespace tpsim::scheduler
