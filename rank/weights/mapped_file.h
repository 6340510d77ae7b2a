// A file's bytes, mapped read-only: pages come from the disk when they are read, and processes of one host
// share them.
//
// The file must not shrink while it is mapped: reading behind its new end ends the process (SIGBUS).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tpsim::rank {

class MappedFile {
 public:
  // Throws UserError naming the file where it is not a regular file that can be read.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tpsim::rank
