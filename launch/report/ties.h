// Which runs of a comparison measurements could not be expected to tell from the best.
//
// The rule by which the best was chosen names a run even where prices are not good enough for it. So every
// other comparable run is compared with it by the same figures: the goodput that was asked for, throughput,
// mean end-to-end latency. Where it is worse in none of them by more than predicted differences of measured
// pairs are off (launch/error_bands/error_band.h), the two are a tie. Runs on different GPUs or of
// different models have nothing in common that pairs would tell: they are a tie where their error bands
// overlap.
#pragma once

#include "launch/error_bands/residuals.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

// Fills ties and certainty. REQUIRES: choose_best() was called.
void find_ties(const ResidualTable& table, proto::ComparisonReport& report);

}  // namespace tpsim::launch
