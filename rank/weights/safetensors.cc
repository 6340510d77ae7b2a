#include "rank/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "proto/base/error.h"
#include "rank/weights/checkpoint_json.h"
#include "rank/weights/stored_type.h"

namespace tpsim::rank {
namespace {

using Kind = JsonEvent::Kind;

constexpr std::size_t kLengthBytes = 8;

// Takes the header's events and makes tensors of them, each with the size that its shape asks for.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  void take(const JsonEvent& event);
  std::vector<StoredTensor> take_tensors() { return std::move(tensors_); }

 private:
  enum class Field : std::uint8_t { kType, kShape, kOffsets, kUnknown };

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_user_error("{}: tensor {} {}", path_, in_quotes(tensor_.name),
                     fmt::format(format, std::forward<Args>(args)...));
  }
  void take_entry(const JsonEvent& event);
  void take_field(const JsonEvent& event);
  void take_element(const JsonEvent& event);
  void begin_field(std::string_view key);
  void end_tensor();

  const std::string& path_;
  std::vector<StoredTensor> tensors_;
  StoredTensor tensor_;
  std::size_t depth_ = 0;  // of objects and arrays that are open
  bool has_metadata_ = false, in_metadata_ = false;
  Field field_ = Field::kUnknown;
  std::array<bool, 3> given_ = {};  // of the tensor, by Field
  std::size_t num_offsets_ = 0;
};

void HeaderReader::take(const JsonEvent& event) {
  if (event.kind == Kind::kEndObject || event.kind == Kind::kEndArray) --depth_;
  if (depth_ == 0 && event.begins_value() && event.kind != Kind::kBeginObject)
    throw_user_error("{}: the header is not a JSON object", path_);
  if (depth_ == 1) take_entry(event);
  if (depth_ == 2) take_field(event);
  if (depth_ == 3 && field_ != Field::kUnknown) take_element(event);
  if (event.kind == Kind::kBeginObject || event.kind == Kind::kBeginArray) ++depth_;
}

// A name, and what it begins or ends.
void HeaderReader::take_entry(const JsonEvent& event) {
  if (event.kind == Kind::kKey) {
    in_metadata_ = event.text == "__metadata__";
    if (in_metadata_ && std::exchange(has_metadata_, true))
      throw_user_error("{}: the header has \"__metadata__\" twice", path_);
    tensor_ = {};
    tensor_.name = event.text;
    given_ = {};
  } else if (event.kind == Kind::kEndObject) {
    if (!in_metadata_) end_tensor();
  } else if (event.kind != Kind::kBeginObject) {
    if (!in_metadata_) fail("is not described by an object with dtype, shape and data_offsets");
    if (event.kind != Kind::kNull) throw_user_error("{}: \"__metadata__\" must be an object of texts", path_);
  }
}

void HeaderReader::take_field(const JsonEvent& event) {
  const Kind kind = event.kind;
  if (in_metadata_) {
    if (kind != Kind::kKey && kind != Kind::kString)
      throw_user_error("{}: \"__metadata__\" must be an object of texts; it has something else in it", path_);
  } else if (kind == Kind::kKey) {
    begin_field(event.text);
  } else if (kind == Kind::kEndArray) {
    if (field_ == Field::kOffsets && num_offsets_ != 2)
      fail("has {} data_offsets; begin and end are needed", num_offsets_);
  } else if (field_ == Field::kType) {
    if (kind != Kind::kString) fail("has a dtype that is not a text");
    const auto type = parse_stored_type(event.text);
    if (!type) fail("has the dtype {}, which safetensors does not have", in_quotes(event.text));
    tensor_.type = *type;
  } else if (field_ == Field::kShape) {
    if (kind != Kind::kBeginArray) fail("has a shape that is not an array");
  } else if (field_ == Field::kOffsets) {
    if (kind != Kind::kBeginArray) fail("has data_offsets that are not an array");
    num_offsets_ = 0;
  }
}

// Of the arrays of a tensor.
void HeaderReader::take_element(const JsonEvent& event) {
  const bool whole = event.kind == Kind::kUnsigned;
  if (field_ == Field::kShape) {
    if (!whole) fail("has a shape with something else than whole numbers from 0 up in it");
    if (tensor_.shape.size() == SafetensorsHeader::kMaxDimensions)
      fail("has more than {} dimensions", SafetensorsHeader::kMaxDimensions);
    tensor_.shape.push_back(event.number);
  } else {
    if (!whole) fail("has data_offsets that are not whole numbers from 0 up");
    if (num_offsets_ == 2) fail("has more than two data_offsets; begin and end are needed");
    (num_offsets_++ == 0 ? tensor_.begin : tensor_.end) = event.number;
  }
}

constexpr std::array<const char*, 3> kFields = {"dtype", "shape", "data_offsets"};  // in the order of Field

void HeaderReader::begin_field(std::string_view key) {
  field_ = Field::kUnknown;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (key != kFields[i]) continue;
    if (std::exchange(given_[i], true)) fail("has {} twice; a field is given once", kFields[i]);
    field_ = static_cast<Field>(i);
  }
}

void HeaderReader::end_tensor() {
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (!given_[i]) fail("has no {}", kFields[i]);
  }
  if (tensor_.begin > tensor_.end) {
    fail("has data_offsets [{}, {}]; the end lies before the begin", tensor_.begin, tensor_.end);
  }
  tensor_.elements = 1;
  bool overflow = false;
  for (const std::uint64_t size : tensor_.shape) {
    overflow |= __builtin_mul_overflow(tensor_.elements, size, &tensor_.elements);
  }
  std::uint64_t bits = 0;
  overflow |= __builtin_mul_overflow(tensor_.elements, std::uint64_t{bits_of(tensor_.type)}, &bits);
  const std::string what =
      fmt::format("is {} of shape {}", to_string(tensor_.type), shape_text(tensor_.shape));
  if (overflow) fail("{}, more than any file can hold", what);
  if (bits % 8 != 0) fail("{}, which is not a whole number of bytes", what);
  if (bits / 8 != tensor_.end - tensor_.begin) {
    fail("{}, which takes {} bytes, but its data_offsets [{}, {}] give {}", what, bits / 8, tensor_.begin,
         tensor_.end, tensor_.end - tensor_.begin);
  }
  tensors_.push_back(std::move(tensor_));
}

}  // namespace

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

SafetensorsHeader::SafetensorsHeader(std::string_view file, const std::string& path) {
  // What `git clone` leaves without git-lfs looks like the real file by its name.
  if (file.starts_with("version https://git-lfs")) {
    throw_user_error("{}: is a git-lfs pointer, not the tensors themselves; fetch them with `git lfs pull`",
                     path);
  }
  if (file.size() < kLengthBytes) {
    throw_user_error("{}: has only {} bytes; a safetensors file begins with the 8-byte length of its header",
                     path, file.size());
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);  // little-endian as the machine, see stored_type.cc
  if (length > kMaxBytes) {
    throw_user_error(
        "{}: the header would be {} bytes long, and may be {} at most; this is not a safetensors file, or it "
        "is damaged",
        path, length, kMaxBytes);
  }
  if (length > file.size() - kLengthBytes) {
    throw_user_error(
        "{}: the header is {} bytes long, but only {} bytes follow; the file is truncated, copy or download "
        "it again",
        path, length, file.size() - kLengthBytes);
  }
  const std::string_view json = file.substr(kLengthBytes, length);
  if (!json.starts_with('{')) {
    throw_user_error("{}: the header does not begin with '{{'; this is not a safetensors file", path);
  }
  HeaderReader reader(path);
  parse_json_events(json, path + ": the header", [&](const JsonEvent& event) { reader.take(event); });
  tensors_ = reader.take_tensors();
  data_begin_ = kLengthBytes + length;
  check_layout(file.size() - data_begin_, path);
}

void SafetensorsHeader::check_layout(std::uint64_t data_bytes, const std::string& path) {
  // An empty tensor sorts before the one that begins where it lies.
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second) {
      throw_user_error("{}: tensor {} is there twice; names must differ", path, in_quotes(tensors_[i].name));
    }
  }
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const StoredTensor& tensor = tensors_[i];
    if (tensor.end > data_bytes) {
      throw_user_error(
          "{}: tensor {} ends at byte {} of the data, but the file has only {} bytes of data; the file is "
          "truncated, copy or download it again",
          path, in_quotes(tensor.name), tensor.end, data_bytes);
    }
    if (tensor.begin < covered) {
      throw_user_error("{}: tensors {} and {} overlap; each byte belongs to one tensor", path,
                       in_quotes(tensors_[i - 1].name), in_quotes(tensor.name));
    }
    if (tensor.begin > covered) {
      throw_user_error("{}: {} bytes before tensor {} belong to no tensor; holes are not allowed", path,
                       tensor.begin - covered, in_quotes(tensor.name));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw_user_error(
        "{}: the last {} bytes belong to no tensor; the file is damaged, copy or download it again", path,
        data_bytes - covered);
  }
}

const StoredTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace tpsim::rank
