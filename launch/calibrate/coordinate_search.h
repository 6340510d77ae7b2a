// Minimises a function of positive numbers by coordinate search on their logarithms: robust, deterministic,
// and good enough for a dozen coefficients.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

namespace tpsim::calibrate {

inline double minimise(std::vector<double*> values, const std::vector<double>& low,
                       const std::vector<double>& high, const std::function<double()>& loss) {
  double best = loss();
  for (double step = 0.7; step > 0.01; step *= 0.6) {
    for (int round = 0; round < 4; ++round) {
      bool improved = false;
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (const double factor : {std::exp(step), std::exp(-step)}) {
          const double before = *values[i];
          *values[i] = std::min(high[i], std::max(low[i], before * factor));
          const double now = loss();
          if (now < best) {
            best = now;
            improved = true;
            break;
          }
          *values[i] = before;
        }
      }
      if (!improved) break;
    }
  }
  return best;
}

}  // namespace tpsim::calibrate
