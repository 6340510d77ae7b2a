// Which of two backends is faster, against the measured kernels of shared/data and of tests/calibration:
// for every shape measured with two backends on one GPU, more than 3 % apart, the predicted faster one is the
// measured faster one in at least 90 % of the pairs. Skipped where the data is not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/kernels/attention_rows.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention::ranking_test {
namespace {

kernels::AttentionKernel kernel_of(bool decode) {
  return decode ? kernels::AttentionKernel::kDecode : kernels::AttentionKernel::kExtend;
}

constexpr double kApart = 1.03;
constexpr double kRight = 0.9;

struct Time {
  std::string backend;
  double measured = 0, predicted = 0;
};

// What was measured: heads, KV heads, head size, window, bytes of q, KV format, prefixes, lengths.
using Shape = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, int,
                         std::vector<std::uint32_t>, std::vector<std::uint32_t>>;

struct Share {
  std::size_t right = 0, pairs = 0;
  double value() const { return static_cast<double>(right) / static_cast<double>(pairs); }
};

class Ranking {
 public:
  explicit Ranking(const std::string& gpu) : gpu_(gpu), profile_(rank::load_hardware(gpu)) {}

  void add(const std::string& backend, const std::vector<kernels::AttentionRow>& rows, bool decode) {
    for (const kernels::AttentionRow& row : rows) {
      const LayerShape& l = row.layer;
      shapes_[decode][{l.num_q_heads, l.num_kv_heads, l.head_dim, l.sliding_window, l.q_bytes,
                       static_cast<int>(l.kv_format), row.prefixes, row.lengths}]
          .emplace_back(backend, &row);
    }
  }

  // Predicts what has more than one time, and counts the pairs that come out.
  Share share() {
    Share all;
    for (const bool decode : {false, true}) {
      std::map<std::string, Share> shares;
      for (const auto& [shape, rows] : shapes_[decode]) {
        if (rows.size() < 2) continue;
        std::vector<Time> times;
        for (const auto& [backend, row] : rows)
          times.push_back({backend, row->seconds, predict(backend, *row, decode)});
        for (std::size_t i = 0; i < times.size(); ++i) {
          for (std::size_t j = i + 1; j < times.size(); ++j) count(times[i], times[j], shares, all);
        }
      }
      for (const auto& [pair, share] : shares) {
        std::cout << gpu_ << (decode ? " decode " : " extend ") << pair << ": " << 100 * share.value()
                  << " % of " << share.pairs << " pairs\n";
      }
    }
    return all;
  }

 private:
  static void count(const Time& a, const Time& b, std::map<std::string, Share>& shares, Share& all) {
    if (std::abs(std::log(a.measured / b.measured)) < std::log(kApart)) return;
    const bool right = (a.measured < b.measured) == (a.predicted < b.predicted);
    for (Share* share : {&shares[a.backend + ", " + b.backend], &all}) {
      ++share->pairs;
      share->right += right ? 1 : 0;
    }
  }

  double predict(const std::string& backend, const kernels::AttentionRow& row, bool decode) {
    auto& made = backends_[backend];
    if (made == nullptr) made = create_attention_backend(backend, profile_, 1);
    auto& planned = dynamic_cast<PlannedBackend&>(*made);
    const PlanCost model(profile_, "attention." + backend + (decode ? ".decode" : ".extend"), row.residency);
    double seconds = 0;
    kernels::with_metadata(row, decode, [&](const ForwardMetadata& metadata) {
      planned.init_forward_metadata(metadata);
      seconds = decode ? planned.decode_cost(model, planned.decode_plan(row.layer), row.layer).seconds
                       : planned.extend_cost(model, planned.extend_plan(row.layer), row.layer).seconds;
    });
    return seconds;
  }

  std::string gpu_;
  proto::HardwareProfile profile_;
  std::map<std::string, std::unique_ptr<AttentionBackend>> backends_;
  std::map<Shape, std::vector<std::pair<std::string, const kernels::AttentionRow*>>> shapes_[2];
};

struct Measured {
  const char* gpu;
  const char* folder;
  std::vector<std::string> backends;
};

class AttentionRanking : public ::testing::TestWithParam<Measured> {};

TEST_P(AttentionRanking, ThePredictedFasterBackendIsTheMeasuredOne) {
  const std::filesystem::path kernels =
      std::filesystem::path(TPSIM_SHARED_DATA) / "kernels" / GetParam().folder;
  if (!std::filesystem::exists(kernels)) GTEST_SKIP() << kernels << " is not here";
  const std::vector<std::string> known = rank::hardware_catalogue();
  if (std::find(known.begin(), known.end(), GetParam().gpu) == known.end())
    GTEST_SKIP() << "the catalogue has no " << GetParam().gpu;
  Ranking ranking(GetParam().gpu);
  std::vector<std::vector<kernels::AttentionRow>> rows;
  rows.reserve(2 * GetParam().backends.size());
  for (const bool decode : {false, true}) {
    for (const std::string& backend : GetParam().backends) {
      rows.push_back(kernels::attention_rows(kernels, backend, kernel_of(decode)));
      ranking.add(backend, rows.back(), decode);
    }
  }
  const Share share = ranking.share();
  ASSERT_GT(share.pairs, 50u);
  EXPECT_GE(share.value(), kRight);
}

INSTANTIATE_TEST_SUITE_P(
    Measured, AttentionRanking,
    ::testing::Values(Measured{"b200", "b200_sxm", {"flashinfer", "triton", "trtllm_mha"}},
                      Measured{"gb200", "gb200", {"flashinfer", "triton", "trtllm_mha"}},
                      Measured{"rtx-pro-6000", "rtx_pro_6000_server", {"flashinfer", "triton"}}));

// Ragged batches and cached prefixes, measured on an H200 for this project.
TEST(OwnRanking, ThePredictedFasterBackendIsTheMeasuredOne) {
  Ranking ranking("h200-sxm");
  std::vector<std::vector<kernels::AttentionRow>> rows;
  rows.reserve(6);
  for (const bool decode : {false, true}) {
    for (const std::string backend : {"flashinfer", "triton", "torch_native"}) {
      rows.push_back(kernels::measured_rows(TPSIM_MEASURED, backend, kernel_of(decode)));
      ranking.add(backend, rows.back(), decode);
    }
  }
  const Share share = ranking.share();
  ASSERT_GT(share.pairs, 100u);
  EXPECT_GE(share.value(), kRight);
}

}  // namespace
}  // namespace tpsim::attention::ranking_test
