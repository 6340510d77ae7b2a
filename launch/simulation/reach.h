// How far a run goes beyond what was measured: the largest shapes of its steps against the largest measured
// calls of each operator class on its GPU (rank/catalogue/ranges, written by
// tests/calibration/measured_ranges.py). Steps are only looked at, a few comparisons each.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "proto/base/archive.h"
#include "proto/report.pb.h"
#include "scheduler/records.h"

namespace tpsim::launch {

// What a step is measured by.
enum class Shape : std::uint8_t {
  kRows,             // tokens of a pass
  kPrefillRequests,  // of a pass
  kDecodeRequests,
  kDecodeTokens,   // in the KV cache, of all requests of a decode batch
  kRequestTokens,  // of the longest request; of a step: of the mean one
};
inline constexpr std::size_t kNumShapes = 5;

// Whether a calibration has an attention kernel or a matrix product that was measured on its GPU; else prices
// follow the GPU's datasheet.
bool any_kernel_measured(const proto::RunReport& header);

// Passes every record on to `sink`.
class Reach : public scheduler::RunObserver {
 public:
  // Against the ranges of the classes in deployment.header's calibration.
  Reach(const Deployment& deployment, scheduler::RunObserver& sink);

  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord& record) override { sink_.on_step(record); }
  bool wants_steps() const override { return sink_.wants_steps(); }
  scheduler::StepTally* tally_of(std::uint32_t replica) override;
  bool on_progress(const scheduler::Progress& progress) override { return sink_.on_progress(progress); }

  // One for each shape that went beyond its narrowest class, and one where the calibration of the
  // deployment's `header` has no attention kernel and no matrix product that was measured on its GPU.
  std::vector<proto::Extrapolation> extrapolations(const proto::RunReport& header) const;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(longest_);
    for (Tally& tally : tallies_) archive(tally);
  }

 private:
  using Shapes = std::array<double, kNumShapes>;
  // The largest call of a class that was measured.
  struct Range {
    std::string operator_class;  // of the report's calibration
    Shape shape = Shape::kRows;
    double largest = 0;
  };

  // Of one replica.
  struct Tally final : scheduler::StepTally {
    explicit Tally(const Shapes& limits) : limits(limits) {}
    void on_step(const scheduler::StepRecord& record) override;
    void write(StateWriter& out) override { out(*this); }
    void read(StateReader& in) override { in(*this); }
    auto state() { return std::tie(largest, beyond_seconds, seconds); }

    const Shapes& limits;
    Shapes largest{}, beyond_seconds{};
    double seconds = 0;
  };

  void add(const Range& range);

  std::vector<Range> ranges_;  // the narrowest of each shape
  scheduler::RunObserver& sink_;
  Shapes limits_;
  double longest_ = 0;  // tokens of a request
  std::deque<Tally> tallies_;
};

}  // namespace tpsim::launch
