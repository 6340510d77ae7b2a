// How far predictions of single rows are off.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace tpsim::kernels {

struct RelativeErrors {
  double median = 0;
  double p90 = 0;
  std::size_t rows = 0;
};

// Of predictions `ratio` times too small (measured / predicted); 0 of none.
inline RelativeErrors relative_errors(std::span<const double> ratios) {
  std::vector<double> errors;
  errors.reserve(ratios.size());
  for (const double ratio : ratios) errors.push_back(std::abs(1 / ratio - 1));
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  return {errors[errors.size() / 2], errors[errors.size() * 9 / 10], errors.size()};
}

}  // namespace tpsim::kernels
