// One safetensors file, mapped, with its tensors readable as fp32.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rank/weights/safetensors_header.h"

namespace tpsim::rank {

// A file's bytes, mapped read-only: pages come from the disk when they are read, and processes of one host
// share them.
//
// The file must not shrink while it is mapped: reading behind its new end ends the process (SIGBUS).
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
