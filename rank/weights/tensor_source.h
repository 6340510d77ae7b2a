// Where weights come from: a checkpoint's tensors by their Hugging Face names, or seeded dummy weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpsim::rank {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Whether there is a tensor of this name. Dummy weights have every name.
  virtual bool has(const std::string& name) const = 0;
  // Throws UserError, naming the file and the tensor, where it is missing or its shape is not `shape`.
  virtual void require(const std::string& name, const std::vector<std::uint64_t>& shape) const = 0;
  // `count` elements from flat index `first` on, as fp32. Throws Stopped where a signal asks to stop.
  // REQUIRES: require(name, shape) succeeded and the range lies in the tensor.
  virtual void read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const = 0;
  // A tensor of `count` whole numbers (I64). Throws UserError where it is missing or another one.
  virtual std::vector<std::int64_t> integers(const std::string& name, std::uint64_t count) const = 0;
};

}  // namespace tpsim::rank
