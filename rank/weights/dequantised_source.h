// The tensors of a quantised checkpoint under the names and shapes of its 16-bit original. What is not
// quantised is passed on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "rank/weights/checkpoint.h"
#include "rank/weights/quantised_tensor.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// Threads may read at the same time.
class DequantisedSource final : public TensorSource {
 public:
  // `gptq_zero_offset`: 1, or 0 where quantization_config.checkpoint_format is "gptq_v2".
  explicit DequantisedSource(Checkpoint checkpoint, int gptq_zero_offset = 1);

  bool has(const std::string& name) const override;
  void require(const std::string& name, const std::vector<std::uint64_t>& shape) const override;
  void read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const override;
  std::vector<std::int64_t> integers(const std::string& name, std::uint64_t count) const override;

 private:
  // nullptr: not quantised.
  const QuantisedTensor* quantised(const std::string& name) const;

  Checkpoint checkpoint_;
  int gptq_zero_offset_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::unique_ptr<QuantisedTensor>> opened_;  // nullptr: not
};

}  // namespace tpsim::rank
