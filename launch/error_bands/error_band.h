// Where a measurement of a predicted figure would lie: as far from the prediction as the measurements of
// loads like it were from theirs.
//
// A band rests on the measured loads that are most like what is asked, of the first of these levels that has
// kFewestLoads of kFewestServers: the same GPU, model family, weights, attention backend and about the same
// load; without the load; without weights and backend; everything, for which kFewestPairs of GPU and family
// are needed. With drafts and without are never mixed but at the last. From 1 / low to high of their ratios
// measured / predicted, of which a tenth lies beyond each end (counting one more load than there is on each
// side), and the prediction itself always inside.
//
// Loads of one server are off alike, and a run that is asked for is not of it. So bands of the same family on
// the same GPU are stretched by one factor a level and figure: the one by which kCoverage of the measured
// loads that find no nearer level without their server lie in bands made without it. (A conformal prediction
// band whose scores are normalised by the level's spread: Lei et al., "Distribution-free predictive inference
// for regression", 2018, section 5; groups left out instead of single rows.)
//
// The last level is for a GPU and a family that nobody measured together. Loads of one such pair are off
// alike, too, and some pairs have two hundred loads and others one: each pair counts as one, shared out over
// its loads. Nothing is stretched there; kNewPairs more are counted than there are, for a new family or GPU
// makes more than one, and many that were met are of servers that prices were fitted to: the fewest with
// which 80 % of the published rows lie inside with their families left out (82 to 88 %; with their GPUs 88 to
// 92; with one pair fewer 79 to 85; `tpsim validate` says how many). Of the same family on other GPUs, or of
// others on the GPU, there are too few pairs to say more: one that is far off would be the band.
//
// No logarithms: bands are the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/error_bands/residuals.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

inline constexpr double kCoverage = 0.8;
inline constexpr std::size_t kFewestLoads = 8;
inline constexpr std::size_t kFewestLoadsOfPair =
    6;  // of the GPU and family; beyond lies only what is not like it
inline constexpr std::size_t kFewestServers = 2;
inline constexpr std::size_t kFewestPairs = 4;  // of GPU and family
inline constexpr std::size_t kNewPairs = 5;     // counted besides those that were met

// Levels of likeness, from the nearest on.
enum class Likeness : std::uint8_t { kLoad, kBackend, kGpuAndFamily, kAnything };
inline constexpr std::size_t kNumLevels = 4;
// "with the same GPU and model family": what loads of the level share with what is asked.
std::string_view to_string(Likeness level);

struct Band {
  double low = 1, high = 1;  // of measured / predicted; low <= 1 <= high
  Likeness like = Likeness::kAnything;
  std::uint32_t loads = 0, servers = 0;
  bool widened = false;  // to what is known of anything
};

// The stretches that `rows` come to, [kNumLevels]; 1 for the last.
std::vector<ByFigure> fit_stretches(const std::vector<Residual>& rows);

// Loads that do not count: of a server, of a model family, on a GPU. Empty: none.
struct LeftOut {
  std::string_view server = {}, family = {}, hardware = {};
};

// `carried_over`: much of the run is priced by what was not measured on its GPU, or beyond the shapes that
// were. The band is then at least as wide as that of the last level, unless about the same load was measured
// with the same kernels: its errors are those of the same prices. Empty where no level has enough loads.
std::optional<Band> error_band(const ResidualTable& table, Figure figure, const proto::LoadTraits& asked,
                               bool carried_over = false, const LeftOut& left_out = {});

// Of the figures of `report`; none where no figure has a band. `carried_over`: why, a sentence; empty:
// nothing is.
std::optional<proto::ErrorBands> error_bands(const ResidualTable& table, const proto::LoadTraits& asked,
                                             const std::string& carried_over, const proto::RunReport& report);

// The median of `values` and the like: the smallest of which `share` of n + 1 values are no larger, the
// largest where none is. REQUIRES: not empty. Sorts.
double upper_quantile(std::vector<double>& values, double share);

// How well predictions tell two settings apart: from pairs of settings that were measured under the same
// load.
//
// Two backends of one model on one GPU are mispriced alike in most of a step, so the difference between them
// is known better than either: what counts is (measured a / measured b) / (predicted a / predicted b). The
// pairs that differ in the same respects as the two that are asked about, on the same GPU with the same model
// family if there are kFewestLoads of them, else on the same GPU, else anywhere.
struct PairError {
  double error = 0;  // relative: kCoverage of the pairs' predicted ratios are off by no more
  std::uint32_t pairs = 0;
  std::string like;  // "pairs of attention backends on the same GPU"
};

// Empty where too few pairs were measured, or the two are of different GPUs or models, whose errors have
// nothing in common.
std::optional<PairError> pair_error(const ResidualTable& table, Figure figure, const proto::LoadTraits& a,
                                    const proto::LoadTraits& b);

}  // namespace tpsim::launch
