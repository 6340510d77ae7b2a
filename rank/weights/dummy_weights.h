// Seeded weights without a checkpoint (--load-format dummy): a function of the seed, the tensor's name and
// the element's global flat index, so that every --tp, every order of reading and every machine has the same
// model.
//
// Values are multiples of a power of two with at most 8 significant bits: bf16, fp16 and fp32 hold them
// exactly, so that weights kept in any of these are the same model too.
//   …norm.weight, …scale, …scalar
//                     1 - 1/16 .. 1 + 7/128, or as "projections" where norms are stored less 1 (Gemma)
//   …bias, …sinks     uniform, mean 0, standard deviation 0.0045
//   projections       (all others) uniform, mean 0, standard deviation 0.018
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// Threads may read at the same time.
class DummyWeights final : public TensorSource {
 public:
  // `norms_less_one`: norm weights are stored less 1 (ModelConfig::norm_plus_one).
  explicit DummyWeights(std::uint64_t seed, bool norms_less_one = false)
      : seed_(seed), norms_less_one_(norms_less_one) {}

  // There is a tensor of every name,
  bool has(const std::string& name) const override;
  // and of every shape.
  void require(const std::string& name, const std::vector<std::uint64_t>& shape) const override;
  void read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const override;
  // Zeros.
  std::vector<std::int64_t> integers(const std::string& name, std::uint64_t count) const override;

 private:
  std::uint64_t seed_;
  bool norms_less_one_;
};

}  // namespace tpsim::rank
