#include "scheduler/workload/sampler.h"

#include <cmath>

namespace tpsim::scheduler {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;  // ln 2 in two parts: the first has trailing zeros, so
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;  // that a small integer times it is exact

}  // namespace

double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact: [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh s with |s| < 0.172: the series has 53 bits after 11 terms.
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return exponent * kLn2High + (2 * s * (1 + sum) + exponent * kLn2Low);
}

double portable_exp(double x) {
  const double k = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| < 0.35
  double sum = 1;
  for (int i = 14; i >= 1; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(k));
}

double Sampler::normal() {
  // Marsaglia's polar method; its second value is thrown away, so that each call is independent of the last.
  for (;;) {
    const double u = 2 * uniform() - 1;
    const double v = 2 * uniform() - 1;
    const double square = u * u + v * v;
    if (square > 0 && square < 1) return u * std::sqrt(-2 * portable_log(square) / square);
  }
}

double Sampler::exponential(double mean) { return -mean * portable_log(1 - uniform()); }

double Sampler::lognormal(double median, double sigma) { return median * portable_exp(sigma * normal()); }

double Sampler::gamma(double shape, double scale) {
  if (shape < 1) {
    // Gamma(k) = Gamma(k + 1) U^(1/k). Below the smallest exponent that exp takes, the value is 0 anyway.
    const double power = portable_log(1 - uniform()) / shape;
    const double rest = gamma(shape + 1, scale);
    return power < -600 ? 0 : rest * portable_exp(power);
  }
  // Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = 1 - uniform();
    if (portable_log(u) < 0.5 * x * x + d - d * v + d * portable_log(v)) return d * v * scale;
  }
}

std::uint64_t Sampler::geometric(double mean) {
  std::uint64_t trials = 1;
  const double failure = 1 - 1 / mean;
  while (uniform() < failure) ++trials;
  return trials;
}

}  // namespace tpsim::scheduler
