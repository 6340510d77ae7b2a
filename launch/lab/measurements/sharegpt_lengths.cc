#include "launch/lab/measurements/sharegpt_lengths.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "proto/base/random.h"

namespace tpsim::launch {
namespace {

constexpr double kLongest = 5;  // of the mean

std::vector<std::uint32_t> lengths(std::uint64_t count, double mean, std::uint64_t seed) {
  std::vector<double> drawn;
  double sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double part = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    drawn.push_back(-std::log(1 - part * (1 - std::exp(-kLongest))));
    sum += drawn.back();
  }
  // Of few parts the middles miss the mean, for most of it lies in the last one.
  const double scale = mean * static_cast<double>(count) / sum;
  std::vector<std::uint32_t> out;
  for (const double value : drawn)
    out.push_back(static_cast<std::uint32_t>(std::max(1.0, std::round(value * scale))));
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[mix64(seed + i * kGoldenGamma) % i]);
  return out;
}

}  // namespace

std::vector<MeasuredRequest> sharegpt_requests(std::uint64_t prompts, double input, double output) {
  const std::vector<std::uint32_t> inputs = lengths(prompts, input, 1), outputs = lengths(prompts, output, 2);
  std::vector<MeasuredRequest> requests(prompts);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].request = i;
    requests[i].input_tokens = inputs[i];
    requests[i].output_tokens = outputs[i];
  }
  return requests;
}

}  // namespace tpsim::launch
