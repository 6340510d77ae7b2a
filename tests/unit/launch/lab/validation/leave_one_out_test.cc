// Loads of servers whose host is not what the profile says: the others tell what each one's is.
#include "launch/lab/validation/leave_one_out.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch/lab/served/servable_load.h"
#include "launch/lab/validation/predict_load.h"
#include "launch/simulation/parallel_loop.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

constexpr double kTruth = 1.4;  // of the servers' kernel launches, over the profile's

// Loads of eager servers, measured on a host that is slower by kTruth at launching kernels.
std::vector<MeasuredLoad> eager_loads(const std::vector<std::string>& servers) {
  proto::HardwareProfile host = rank::load_hardware("h200-sxm");
  host.set_kernel_launch_seconds(kTruth * host.kernel_launch_seconds());
  const std::atomic<bool> stop = false;
  std::vector<MeasuredLoad> loads;
  for (const std::string& server : servers) {
    for (const char* const at_once : {"1", "2", "4"}) {
      MeasuredLoad load;
      load.server = server;
      load.load = at_once;
      load.model = "llama-3.1-8b";
      load.hardware = "h200-sxm";
      const std::string backend = loads.size() % 2 == 0 ? "fa3" : "triton";
      load.flags = {"--model-path",
                    "llama-3.1-8b",
                    "--hardware",
                    "h200-sxm",
                    "--attention-backend",
                    backend,
                    "--dataset-name",
                    "random",
                    "--random-input-len",
                    "200",
                    "--random-output-len",
                    "20",
                    "--random-range-ratio",
                    "1",
                    "--num-prompts",
                    "8",
                    "--disable-cuda-graph",
                    "--max-concurrency",
                    at_once};
      const ServableLoad servable(load, load.flags);
      Deployment deployment = servable.deployment();
      deployment.price_by(host);
      LoadRecords records(stop);
      servable.serve(deployment, records);
      load.measured = records.figures();
      loads.push_back(load);
    }
  }
  return loads;
}

std::vector<proto::ValidatedRow> predicted(const std::vector<MeasuredLoad>& loads) {
  const std::atomic<bool> stop = false;
  std::vector<proto::ValidatedRow> rows;
  for (const MeasuredLoad& load : loads) rows.push_back(predict_load(load, stop));
  return rows;
}

void nothing(std::size_t, std::size_t) {}

TEST(LeaveOneOut, AHostIsFoundWithoutTheServerThatIsLeftOut) {
  const std::vector<MeasuredLoad> loads = eager_loads({"a", "b", "c"});
  std::vector<proto::ValidatedRow> rows = predicted(loads);
  std::size_t ticks = 0, last = 0;
  const proto::LeaveOneOut out = leave_one_out(
      loads, "server", 2,
      [&](std::size_t done, std::size_t most) {
        ++ticks;
        last = done;
        EXPECT_LE(done, most);
      },
      rows);
  EXPECT_GT(ticks, 0U);
  EXPECT_GT(last, 2 * loads.size());
  ASSERT_EQ(out.fits_size(), 4);  // to all, and without each
  EXPECT_EQ(out.fits(0).left_out(), "");
  EXPECT_EQ(out.fits(2).left_out(), "b");
  EXPECT_LT(out.fits(2).rows(), out.fits(0).rows());
  for (const proto::ConstantsFit& fit : out.fits()) {
    EXPECT_EQ(fit.hardware(), "h200-sxm");
    for (const proto::FittedConstant& constant : fit.constants()) {
      if (constant.name() != "kernel_launch_seconds") continue;
      EXPECT_TRUE(constant.kept().empty());
      EXPECT_NEAR(constant.fitted() / constant.before(), kTruth, 0.04);
    }
  }
  for (const proto::ValidatedRow& row : rows) {
    const proto::MeasuredFigure& tpot = row.tpot_ms();
    EXPECT_LT(tpot.predicted() / tpot.measured(), 0.85);
    EXPECT_NEAR(tpot.left_out() / tpot.measured(), 1, 0.03) << row.server();
    EXPECT_NEAR(tpot.refitted() / tpot.measured(), 1, 0.03);
  }
}

TEST(LeaveOneOut, TheOnlyGroupOfAGpuHasNobodyElse) {
  const std::vector<MeasuredLoad> loads = eager_loads({"a", "b"});
  std::vector<proto::ValidatedRow> rows = predicted(loads);
  const proto::LeaveOneOut out = leave_one_out(loads, "model", 1, nothing, rows);
  EXPECT_EQ(out.by(), "model");
  EXPECT_EQ(out.fits_size(), 0);
  for (const proto::ValidatedRow& row : rows) EXPECT_FALSE(row.tpot_ms().has_left_out());
}

TEST(LeaveOneOut, WhatIsGivenUpLeavesTheRowsAsTheyWere) {
  const std::vector<MeasuredLoad> loads = eager_loads({"a", "b"});
  std::vector<proto::ValidatedRow> rows = predicted(loads);
  EXPECT_THROW(leave_one_out(
                   loads, "server", 2, [](std::size_t, std::size_t) { throw std::runtime_error(""); }, rows),
               std::runtime_error);
  for (const proto::ValidatedRow& row : rows) EXPECT_FALSE(row.tpot_ms().has_left_out());
}

TEST(ParallelLoop, DoesEachNumberOnce) {
  for (const std::uint32_t threads : {1U, 3U, 9U}) {
    std::vector<std::atomic<int>> times(50);
    std::size_t done = 0;
    parallel_loop(
        times.size(), threads, [&](std::size_t i, const std::atomic<bool>&) { ++times[i]; },
        [&](std::size_t so_far) { done = so_far; });
    EXPECT_EQ(done, times.size());
    for (const auto& count : times) EXPECT_EQ(count, 1);
  }
  parallel_loop(
      0, 4, [](std::size_t, const std::atomic<bool>&) { FAIL(); }, [](std::size_t) {});
}

TEST(ParallelLoop, StopsTheOthersWhereOneFails) {
  std::atomic<int> begun = 0;
  const auto work = [&](std::size_t i, const std::atomic<bool>& stop) {
    ++begun;
    if (i == 1) throw std::runtime_error("one");
    while (i == 0 && !stop) {
    }
  };
  EXPECT_THROW(parallel_loop(1000, 2, work, [](std::size_t) {}), std::runtime_error);
  EXPECT_LE(begun, 3);
}

}  // namespace
}  // namespace tpsim::launch
