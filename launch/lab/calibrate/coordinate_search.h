// Minimises a function of positive numbers by coordinate search on their logarithms: robust, deterministic,
// and good enough for a dozen coefficients.
#pragma once

#include <algorithm>
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

// Numbers that a search varies, each between its bounds.
class SearchSpace {
 public:
  // `value` must outlive this. One below `least` begins between the bounds: the search multiplies.
  void vary(double& value, double least, double most) {
    if (value < least) value = std::sqrt(least * most);
    values_.push_back(&value);
    low_.push_back(least);
    high_.push_back(most);
  }
  // So many searches, each from where the one before ended; returns what is left of the loss.
  double minimise(const std::function<double()>& loss, int rounds) const {
    double left = 0;
    for (int round = 0; round < rounds; ++round) left = calibrate::minimise(values_, low_, high_, loss);
    return left;
  }

 private:
  std::vector<double*> values_;
  std::vector<double> low_, high_;
};

}  // namespace tpsim::calibrate
