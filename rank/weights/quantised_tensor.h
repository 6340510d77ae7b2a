// A quantised tensor of a checkpoint, readable as fp32 under the name that it would have in 16 bit.
//
//   fp8, int8     X.weight with X.weight_scale_inv or X.weight_scale: for the whole, for each output or for
//                 blocks of weights (DeepSeek; compressed-tensors; ModelOpt)
//   nvfp4         X.weight (two in a byte), X.weight_scale for 16 of a row in fp8, X.weight_scale_2
//                 (ModelOpt); X.weight_packed, X.weight_scale, X.weight_global_scale, a divisor
//                 (compressed-tensors)
//   int4          X.qweight, X.qzeros, X.scales and X.g_idx: GPTQ packs along the inputs, AWQ along the
//                 outputs in an order of its own; X.weight_packed, X.weight_scale (compressed-tensors)
//   mxfp4         Y_blocks and Y_scales for all experts (gpt-oss), as Y transposed
//
// A value is its code times its scale, rounded to the scale's type, as torch does it: bit for bit what
// Transformers, compressed-tensors, AutoGPTQ and AutoAWQ dequantise to (tests/references/quantised.py).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rank/weights/stored_type.h"

namespace tpsim::rank {

class QuantisedTensor {
 public:
  explicit QuantisedTensor(std::vector<std::uint64_t> shape) : shape_(std::move(shape)) {}
  QuantisedTensor(const QuantisedTensor&) = delete;
  QuantisedTensor& operator=(const QuantisedTensor&) = delete;
  virtual ~QuantisedTensor() = default;

  // As dequantised; the last dimension is contiguous.
  const std::vector<std::uint64_t>& shape() const { return shape_; }
  // `count` elements from flat index `first` on. REQUIRES: they lie in the tensor.
  void read(std::uint64_t first, std::uint64_t count, float* out) const;

 private:
  // Elements [column, column + count) of row `row`, all dimensions but the last taken as one.
  virtual void read_row(std::uint64_t row, std::uint64_t column, std::uint64_t count, float* out) const = 0;

  std::vector<std::uint64_t> shape_;
};

using FindTensor = std::function<std::optional<StoredView>(const std::string& name)>;

// nullptr: no tensors make `name` up. `gptq_zero_offset`: what is added to GPTQ's stored zero points, 0 in
// its format "gptq_v2". `where` names the checkpoint. Throws UserError naming the tensor where parts are
// missing or do not fit together.
std::unique_ptr<QuantisedTensor> open_quantised(const FindTensor& find, const std::string& name,
                                                int gptq_zero_offset, const std::string& where);

}  // namespace tpsim::rank
