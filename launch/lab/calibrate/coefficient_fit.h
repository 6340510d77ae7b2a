// Which of a profile's coefficients measured times can tell, and their values.
//
// Unknowns are the logarithms of factors on coefficients, 0 where the profile's values stay. What is known of
// them before any row is a normal distribution around 0 of `width`; rows are log(predicted / measured),
// robust against outliers (Huber's weights, P. J. Huber, Robust Statistics, 1981, chapter 7). Gauss-Newton
// steps with derivatives by differences. An unknown is told by the rows where its deviation afterwards (the
// covariance of the linearised problem) is less than a third of its width; of those that are not, the least
// known one is put back to 0, and the others are judged again.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tpsim::calibrate {

struct Unknown {
  std::string name;
  double width = 0.3;               // > 0
  double lowest = -1, highest = 1;  // bounds, with 0 between them
};

// log(predicted / measured) of every row; NaN where a row has no prediction. Called with as many logarithms
// as there are unknowns, within their bounds.
using Residuals = std::function<std::vector<double>(const std::vector<double>& logarithms)>;

struct FittedUnknown {
  bool told = false;
  double logarithm = 0;   // 0 unless told
  double deviation = 0;   // of the logarithm, where told
  bool at_bound = false;  // told, and stopped there
  std::string reason;     // why it is not told
  // Of each row: whether a tenth more of it would move it by half a per cent or more.
  std::vector<bool> felt;
};

struct CoefficientFit {
  std::vector<FittedUnknown> unknowns;  // in their order
  std::vector<double> residuals;        // of all rows, at the fitted values
};

// The least number of rows with a weight that anything is fitted to.
inline constexpr std::size_t kLeastFitRows = 6;

// `weights`: one for each row, 0 for those that are only looked at. REQUIRES: at least kLeastFitRows others.
CoefficientFit fit_coefficients(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                                const Residuals& residuals);

}  // namespace tpsim::calibrate
