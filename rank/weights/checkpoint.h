// A Hugging Face checkpoint: the safetensors files of a folder as one source of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rank/weights/quantised_tensor.h"
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
