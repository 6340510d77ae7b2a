// How well predictions tell two settings apart: from pairs of settings that were measured under the same
// load.
//
// Two backends of one model on one GPU are mispriced alike in most of a step, so the difference between them
// is known better than either: what counts is (measured a / measured b) / (predicted a / predicted b). The
// pairs that differ in the same respects as the two that are asked about, on the same GPU with the same model
// family if there are kFewestLoads of them, else on the same GPU, else anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/error_bands/residuals.h"

namespace tpsim::launch {

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
