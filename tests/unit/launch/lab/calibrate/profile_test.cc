// Profiles that calibration changes and writes are those that --hardware reads.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "launch/lab/calibrate/coefficients_of_run.h"
#include "launch/lab/calibrate/fit_report.h"
#include "launch/lab/calibrate/serving_fit.h"
#include "rank/cost/hardware.h"

namespace tpsim::calibrate {
namespace {

TEST(ProfileText, OfEveryGpuReadsBackAsItWas) {
  for (const std::string& name : rank::hardware_catalogue()) {
    const proto::HardwareProfile profile = rank::load_hardware(name);
    const proto::HardwareProfile again = rank::parse_hardware(profile_text(profile), name);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, profile)) << name;
  }
}

TEST(Coefficients, AreReadAndSetInTheirPlace) {
  proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  const std::vector<Coefficient> all = {{"", "graph_kernel_gap_seconds", 0.7},
                                        {"gemm", "memory", 0.3},
                                        {"gemm", "compute", 0.3},
                                        {"all_reduce.custom", "fixed_seconds", 0.5},
                                        {"gemm.nvfp4", "memory", 0.3},  // no entry: the formula's default
                                        {"attention.fa3.decode", "memory", 0.3}};
  std::vector<double> logarithms;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(value_of(profile, all[i])) << all[i].name();
    logarithms.push_back(-0.1 - 0.05 * static_cast<double>(i));
  }
  const proto::HardwareProfile changed = with_factors(profile, all, logarithms);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_NEAR(std::log(*value_of(changed, all[i]) / *value_of(profile, all[i])), logarithms[i], 1e-12)
        << all[i].name();
  EXPECT_EQ(changed.efficiencies_size(), profile.efficiencies_size() + 1);
  rank::parse_hardware(profile_text(changed), "changed");
  // A share stays one.
  const proto::HardwareProfile most = with_factors(profile, {all[1]}, {5.0});
  EXPECT_EQ(*value_of(most, all[1]), 1);
  EXPECT_FALSE(value_of(profile, {"attention.cutlass_mla.mla_decode", "memory", 0.3}));
}

TEST(Coefficients, OfARunAreThoseOfItsPrices) {
  proto::RunReport header;
  for (const char* name : {"gemm", "attention.fa3.decode", "attention.torch_native.decode.launch_seconds",
                           "attention.torch_native.decode.shape_seconds", "graph_replay_seconds",
                           "graph_replay_seconds", "context_bytes", "sampling", "speculation.verify"})
    header.add_calibration()->set_operator_class(name);
  std::vector<std::string> names;
  for (const Coefficient& coefficient : coefficients_of_run(header)) names.push_back(coefficient.name());
  EXPECT_EQ(names, (std::vector<std::string>{"gemm memory", "gemm compute", "attention.fa3.decode memory",
                                             "attention.torch_native.decode launch_seconds",
                                             "graph_replay_seconds"}));
}

}  // namespace
}  // namespace tpsim::calibrate
