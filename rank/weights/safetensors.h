// One safetensors file, mapped, with its tensors readable as fp32.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rank/weights/stored_type.h"

namespace tpsim::rank {

// The header of a safetensors file: which tensors it has, and where.
//
// The format (huggingface/safetensors, README "Format"): 8 bytes with the header's length, little-endian; the
// header, a JSON object {"NAME": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..} with an
// optional "__metadata__" of texts; the data, which the tensors cover without overlaps and holes. Tensors may
// be empty, or scalars (shape []).
struct StoredTensor {
  std::string name;
  std::vector<std::uint64_t> shape;  // row-major; the last dimension is contiguous
  StoredType type = StoredType::kF32;
  std::uint64_t begin = 0;  // bytes after the header
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

// A file's bytes, mapped read-only: pages come from the disk when they are read, and processes of one host
// share them.
//
// The file must not shrink while it is mapped: reading beyond its new end ends the process (SIGBUS).
class MappedFile {
 public:
  // Throws UserError naming the file where it is not a regular file that can be read.
  explicit MappedFile(const std::string& path);

  std::string_view bytes() const {
    return {static_cast<const char*>(region_.get_address()), region_.get_size()};
  }

 private:
  boost::interprocess::mapped_region region_;  // of an empty file: of nothing
};

// Threads may read at the same time.
class SafetensorsFile {
 public:
  // Throws UserError where the file cannot be read or its header is wrong (SafetensorsHeader).
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return path_; }
  // In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return header_.tensors(); }
  const StoredTensor* find(std::string_view name) const { return header_.find(name); }

  // Throws UserError, naming file and tensor, where the type is not BF16, F16 or F32.
  void require_readable(const StoredTensor& tensor) const;
  // `count` elements from flat index `first` on, as fp32. Throws as require_readable, and std::logic_error
  // where the range is not in the tensor. REQUIRES: `tensor` is one of this file's.
  void read(const StoredTensor& tensor, std::uint64_t first, std::uint64_t count, float* out) const;
  // The first byte of a tensor of any type. REQUIRES: `tensor` is one of this file's.
  const char* data(const StoredTensor& tensor) const {
    return file_.bytes().data() + header_.data_begin() + tensor.begin;
  }

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace tpsim::rank
