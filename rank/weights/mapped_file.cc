#include "rank/weights/mapped_file.h"

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <filesystem>
#include <system_error>

#include "proto/base/error.h"

namespace tpsim::rank {

MappedFile::MappedFile(const std::string& path) {
  namespace ipc = boost::interprocess;
  // Asked first: opening a pipe would wait for its writer.
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw_user_error("{}: cannot be opened ({})", path, error.message());
  if (!std::filesystem::is_regular_file(status))
    throw_user_error("{}: is not a file; a regular file is needed", path);
  try {
    const ipc::file_mapping file(path.c_str(), ipc::read_only);
    if (std::filesystem::file_size(path, error) == 0) return;  // nothing to map
    region_ = ipc::mapped_region(file, ipc::read_only);
  } catch (const ipc::interprocess_exception& failed) {
    throw_user_error("{}: cannot be opened ({})", path,
                     std::generic_category().message(failed.get_native_error()));
  }
}

}  // namespace tpsim::rank
