#include "rank/weights/safetensors.h"

#include <stdexcept>
#include <utility>

#include "proto/base/error.h"
#include "rank/weights/in_quotes.h"

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

}  // namespace tpsim::rank
