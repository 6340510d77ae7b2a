// Tensors that have no file: latents and embeddings of prompts, from which a pipeline that is computed
// begins. Element i of the tensor `name` is
//     sqrt(3) (2 (mix64(fnv1a(name) + seed + (i + 1) kGoldenGamma) >> 40) / 2^24 - 1)
// of mean 0 and variance 1, so that every process and tests/references/diffusion_weights.py make the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tpsim::rank {

// In [-1, 1): the number behind element i.
double seeded_unit(std::string_view name, std::uint64_t seed, std::size_t i);
std::vector<float> seeded_tensor(std::string_view name, std::uint64_t seed, std::size_t count);

}  // namespace tpsim::rank
