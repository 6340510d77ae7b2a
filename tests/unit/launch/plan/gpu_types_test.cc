#include "launch/plan/gpu_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tpsim::launch::gpu_types_test {
namespace {

GpuPlan plan(const std::string& hardware, double goodput, double share, double latency,
             std::optional<double> cost = std::nullopt) {
  GpuPlan out;
  out.hardware = hardware;
  out.gpu_hour_cost = cost;
  proto::RunReport& run = *out.report.add_runs();
  run.set_tp_size(2);
  run.set_completed(10);
  run.set_total_throughput(1000 * goodput);
  run.set_request_goodput(goodput);
  run.set_goodput_share(share);
  run.set_mean_e2e_latency_ms(latency);
  out.answer.order = {0};
  return out;
}

std::vector<std::string> ordered(std::vector<GpuPlan> plans) {
  order_gpu_types({}, plans);
  std::vector<std::string> names;
  for (const GpuPlan& plan : plans) names.push_back(plan.hardware);
  return names;
}

TEST(GpuTypes, StandInTheOrderOfTheirRates) {
  EXPECT_THAT(ordered({plan("a", 8, 1, 10), plan("b", 10, 1, 20), plan("c", 9.95, 1, 10)}),
              testing::ElementsAre("c", "b", "a"))
      << "within 1 % the lower latency";
  EXPECT_THAT(ordered({plan("a", 10, 0.5, 10), plan("b", 1, 1, 10)}), testing::ElementsAre("b", "a"))
      << "what holds comes first";
  GpuPlan shorter = plan("a", 10, 1, 10);
  shorter.report.mutable_runs(0)->set_completed(9);
  EXPECT_THAT(ordered({shorter, plan("b", 1, 0.5, 10)}), testing::ElementsAre("b", "a"));
}

TEST(GpuTypes, StandInTheOrderOfTheirCostsWhereAllHaveOne) {
  EXPECT_THAT(ordered({plan("a", 10, 1, 10, 4), plan("b", 8, 1, 10, 2), plan("c", 4, 1, 10, 2)}),
              testing::ElementsAre("b", "a", "c"));
  EXPECT_THAT(ordered({plan("a", 10, 1, 10, 4), plan("b", 8, 1, 10)}), testing::ElementsAre("a", "b"));
}

TEST(GpuTypes, CostIsThatOfTheHighestRate) {
  proto::RunReport run;
  run.set_tp_size(1);
  run.set_request_throughput(1);
  run.set_total_throughput(1000);
  const double cost = cost_per_million_tokens(run, 3.6);
  EXPECT_NEAR(cost, 1, 1e-12);
  run.set_max_goodput_rate(4);
  EXPECT_NEAR(cost_per_million_tokens(run, 3.6), cost / 4, 1e-12);
}

}  // namespace
}  // namespace tpsim::launch::gpu_types_test
