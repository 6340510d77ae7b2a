#include "rank/numeric/diffusion/seeded_tensor.h"

#include <cmath>

#include "proto/base/hash.h"
#include "proto/base/random.h"

namespace tpsim::rank {

double seeded_unit(std::string_view name, std::uint64_t seed, std::size_t i) {
  return static_cast<double>(mix64(fnv1a(name) + seed + (i + 1) * kGoldenGamma) >> 40) / (1 << 23) - 1;
}

std::vector<float> seeded_tensor(std::string_view name, std::uint64_t seed, std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(std::sqrt(3.0) * seeded_unit(name, seed, i));
  return out;
}

}  // namespace tpsim::rank
