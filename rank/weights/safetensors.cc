#include "rank/weights/safetensors.h"

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "rank/weights/stored_type.h"

namespace tpsim::rank {

SafetensorsFile::SafetensorsFile(std::string path)
    : path_(std::move(path)), file_(path_), header_(file_.bytes(), path_) {}

void SafetensorsFile::require_readable(const StoredTensor& tensor) const {
  if (is_readable(tensor.type)) return;
  throw_user_error(
      "{}: tensor {} is stored as {}; numeric execution reads BF16, F16 and F32: convert the checkpoint to "
      "bfloat16",
      path_, in_quotes(tensor.name), to_string(tensor.type));
}

void SafetensorsFile::read(const StoredTensor& tensor, std::uint64_t first, std::uint64_t count,
                           float* out) const {
  require_readable(tensor);
  if (first > tensor.elements || count > tensor.elements - first) {
    throw std::logic_error("SafetensorsFile::read: the range is not in the tensor");
  }
  const std::uint64_t element_bytes = bits_of(tensor.type) / 8;
  const std::uint64_t at = header_.data_begin() + tensor.begin + first * element_bytes;
  to_fp32(tensor.type, file_.bytes().data() + at, count, out);
}

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
