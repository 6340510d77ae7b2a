// A file's bytes, mapped read-only: pages come from the disk when they are read, and processes of one host
// share them.
//
// The file must not shrink while it is mapped: reading behind its new end ends the process (SIGBUS).
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <string>
#include <string_view>

namespace tpsim::rank {

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

}  // namespace tpsim::rank
