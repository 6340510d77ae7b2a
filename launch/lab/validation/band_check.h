// What validated loads say of error bands.
#pragma once

#include "launch/error_bands/residuals.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

// The rows of `validation` as error bands rest on them, stretches included. Loads that have no server's name
// count as one server by model, settings, GPU and number of GPUs. A latency that was not measured is TTFT and
// a token's time for each further token of the answer, where those were.
ResidualTable residuals_of(const proto::Validation& validation);

// Adds bands: how many of the rows lie in the bands that are made of the other servers' rows.
void check_bands(proto::Validation& validation);

}  // namespace tpsim::launch
