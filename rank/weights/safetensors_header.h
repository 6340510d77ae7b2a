// The header of a safetensors file: which tensors it has, and where.
//
// The format (huggingface/safetensors, README "Format"): 8 bytes with the header's length, little-endian; the
// header, a JSON object {"NAME": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..} with an
// optional "__metadata__" of texts; the data, which the tensors cover without overlaps and holes. Tensors may
// be empty, or scalars (shape []).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rank/weights/stored_type.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

struct StoredTensor : TensorInfo {
  StoredType type = StoredType::kF32;
  std::uint64_t begin = 0;  // bytes behind the header
  std::uint64_t end = 0;
  std::uint64_t elements = 0;  // the product of shape
};

class SafetensorsHeader {
 public:
  static constexpr std::uint64_t kMaxBytes = 100'000'000;  // as the reference implementation
  static constexpr std::size_t kMaxDimensions = 32;

  // `file`: all bytes of the file; `path` names it in errors. Throws UserError with the first mistake that is
  // found, naming the tensor where there is one. When it returns, every tensor lies within the file and has
  // the size that its shape and type ask for.
  SafetensorsHeader(std::string_view file, const std::string& path);
  SafetensorsHeader(SafetensorsHeader&&) = default;
  SafetensorsHeader& operator=(SafetensorsHeader&&) = default;

  // In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // nullptr: there is none.
  const StoredTensor* find(std::string_view name) const;
  // Where the data begins in the file.
  std::uint64_t data_begin() const { return data_begin_; }

 private:
  void check_layout(std::uint64_t data_bytes, const std::string& path);

  std::uint64_t data_begin_ = 0;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys point into tensors_
};

}  // namespace tpsim::rank
