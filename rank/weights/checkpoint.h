// A Hugging Face checkpoint: the safetensors files of a folder as one source of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rank/weights/safetensors.h"
#include "rank/weights/stored_type.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// Threads may read at the same time. Nothing is read but headers before read().
class Checkpoint final : public TensorSource {
 public:
  // `folder`: --model-path, a folder or a file in it (config.json). Files are, whichever is there first:
  // those of model.safetensors.index.json, with the tensors that it names; model.safetensors; every
  // *.safetensors. Throws UserError naming --model-path or the file where there are none, one is missing or
  // damaged, an indexed tensor is not in its file, or two files have the same tensor.
  explicit Checkpoint(const std::string& folder);

  bool has(const std::string& name) const override;
  // Also throws UserError where the tensor's type is not BF16, F16 or F32.
  void require(const std::string& name, const std::vector<std::uint64_t>& shape) const override;
  void read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const override;
  std::vector<std::int64_t> integers(const std::string& name, std::uint64_t count) const override;

  const std::string& folder() const { return folder_; }
  // The bytes of a tensor of any type.
  std::optional<StoredView> view(const std::string& name) const;

 private:
  struct Place {
    std::size_t file = 0;
    std::size_t tensor = 0;
  };

  void add(std::size_t file, const StoredTensor& tensor);
  void open_indexed(const std::string& index);
  void open_all(const std::vector<std::string>& paths);
  const StoredTensor& tensor(const Place& place) const { return files_[place.file].tensors()[place.tensor]; }

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> tensors_;
};

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

// The tensors of a quantised checkpoint under the names and shapes of its 16-bit original. What is not
// quantised is passed on. Threads may read at the same time.
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
