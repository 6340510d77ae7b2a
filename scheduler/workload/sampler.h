// Random numbers that are the same on every platform.
//
// The standard library's distributions differ between libraries, and so do the last bits of its logarithm
// between processors. Here everything is made of std::mt19937_64, + - * / and sqrt, which do not.
#pragma once

#include <cstdint>
#include <random>
#include <tuple>

namespace tpsim::scheduler {

class Sampler {
 public:
  explicit Sampler(std::uint64_t seed) : random_(seed) {}

  // In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  double normal();  // mean 0, deviation 1
  double exponential(double mean);
  // exp of a normal: half of the values are below `median`; `sigma` is the deviation of the logarithm.
  double lognormal(double median, double sigma);
  // REQUIRES: shape > 0, scale > 0. Mean shape*scale, coefficient of variation 1/sqrt(shape).
  double gamma(double shape, double scale);
  // Trials up to and with the first success: 1, 2, …. REQUIRES: mean >= 1.
  std::uint64_t geometric(double mean);

  auto state() { return std::tie(random_); }

 private:
  std::mt19937_64 random_;
};

// Natural logarithm (x > 0, finite) and exponential (|x| < 700), to about 1e-15 of the value, by arithmetic
// alone.
double portable_log(double x);
double portable_exp(double x);

}  // namespace tpsim::scheduler
