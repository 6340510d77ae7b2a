// Relative errors, summed up.
#pragma once

#include <vector>

#include "proto/validation.pb.h"

namespace tpsim::launch {

// `ratios`: predicted / measured, in any order. All 0 where there are none.
proto::ErrorFigures error_figures(const std::vector<double>& ratios);

}  // namespace tpsim::launch
