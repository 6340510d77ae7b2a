// Minimises a function of positive numbers by coordinate search on their logarithms: robust, deterministic,
// and good enough for a dozen coefficients.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace tpsim::calibrate {

class CoordinateSearch {
 public:
  // `value` must outlive this. One below `least` begins between the bounds: the search multiplies.
  void vary(double& value, double least, double most) {
    if (value < least) value = std::sqrt(least * most);
    varied_.push_back({&value, least, most});
  }

  // So many searches, each from where the one before ended; returns what is left of the loss.
  double minimise(const std::function<double()>& loss, int rounds) const {
    double left = 0;
    for (int round = 0; round < rounds; ++round) {
      left = loss();
      for (double step = 0.7; step > 0.01; step *= 0.6)
        for (int pass = 0; pass < 4; ++pass)
          if (!improve(step, loss, left)) break;
    }
    return left;
  }

 private:
  struct Varied {
    double* value;
    double least, most;
  };

  // Whether a step up or down of any number makes the loss less than `best`, which it then becomes.
  bool improve(double step, const std::function<double()>& loss, double& best) const {
    bool improved = false;
    for (const Varied& of : varied_) {
      for (const double factor : {std::exp(step), std::exp(-step)}) {
        const double before = *of.value;
        *of.value = std::min(of.most, std::max(of.least, before * factor));
        const double now = loss();
        if (now < best) {
          best = now;
          improved = true;
          break;
        }
        *of.value = before;
      }
    }
    return improved;
  }

  std::vector<Varied> varied_;
};

}  // namespace tpsim::calibrate
