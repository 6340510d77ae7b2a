#include "rank/weights/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/weights/checkpoint_json.h"
#include "rank/weights/safetensors.h"
#include "rank/weights/stored_type.h"

namespace tpsim::rank {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = 100'000'000;

// The folder's regular files that end in `suffix`, by name.
std::vector<std::string> files_ending_in(const fs::path& folder, std::string_view suffix) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error)
    throw_user_error("--model-path {}: the folder cannot be read ({})", folder.string(), error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    std::string path = entries->path().string();
    if (path.ends_with(suffix)) paths.push_back(std::move(path));
    if (error) break;
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

[[noreturn]] void refuse_without_files(const fs::path& folder) {
  for (const char* other : {".bin", ".pt", ".pth", ".gguf"}) {
    const std::vector<std::string> paths = files_ending_in(folder, other);
    if (paths.empty()) continue;
    throw_user_error(
        "--model-path {}: has no *.safetensors, only files like {}; convert the checkpoint to safetensors, "
        "or use --load-format dummy",
        folder.string(), fs::path(paths.front()).filename().string());
  }
  throw_user_error(
      "--model-path {}: has no *.safetensors; numeric execution needs a checkpoint's weights, or "
      "--load-format dummy",
      folder.string());
}

}  // namespace

Checkpoint::Checkpoint(const std::string& folder) : folder_(folder) {
  std::error_code error;
  if (fs::is_regular_file(folder_, error)) {
    folder_ = fs::path(folder_).parent_path().string();
    if (folder_.empty()) folder_ = ".";
  }
  if (!fs::is_directory(folder_, error)) {
    throw_user_error("--model-path {}: there is no such folder; one with *.safetensors is needed", folder_);
  }
  const fs::path index = fs::path(folder_) / "model.safetensors.index.json";
  const fs::path single = fs::path(folder_) / "model.safetensors";
  if (fs::exists(index, error)) {
    open_indexed(index.string());
  } else if (fs::exists(single, error)) {
    open_all({single.string()});
  } else {
    const std::vector<std::string> paths = files_ending_in(folder_, ".safetensors");
    if (paths.empty()) refuse_without_files(folder_);
    open_all(paths);
  }
}

void Checkpoint::add(std::size_t file, const StoredTensor& tensor) {
  const auto number = static_cast<std::size_t>(&tensor - files_[file].tensors().data());
  const auto [old, added] = tensors_.emplace(tensor.name, Place{file, number});
  if (!added) {
    throw_user_error("{}: tensor {} is also in {}; a model.safetensors.index.json must say which one counts",
                     files_[file].path(), in_quotes(tensor.name), files_[old->second.file].path());
  }
}

void Checkpoint::open_indexed(const std::string& index) {
  const MappedFile file(index);
  if (file.bytes().size() > kMaxIndexBytes) {
    throw_user_error("{}: is {} bytes long, and may be {} at most", index, file.bytes().size(),
                     kMaxIndexBytes);
  }
  for (const auto& [name, tensors] : parse_weight_map(file.bytes(), index)) {
    const std::string path = (fs::path(folder_) / name).string();
    std::error_code error;
    if (!fs::exists(path, error)) {
      throw_user_error("{}: is missing, but {} says that tensors are in it; download the whole checkpoint",
                       path, index);
    }
    files_.emplace_back(path);
    for (const std::string& tensor : tensors) {
      const StoredTensor* stored = files_.back().find(tensor);
      if (stored == nullptr) {
        throw_user_error("{}: has no tensor {}, but {} says so; the two must belong together", path,
                         in_quotes(tensor), index);
      }
      add(files_.size() - 1, *stored);
    }
  }
}

void Checkpoint::open_all(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    for (const StoredTensor& tensor : files_.back().tensors()) add(files_.size() - 1, tensor);
  }
}

std::optional<StoredView> Checkpoint::view(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return std::nullopt;
  const StoredTensor& stored = tensor(found->second);
  return StoredView{name, stored.type, stored.shape, stored.elements,
                    files_[found->second.file].data(stored)};
}

bool Checkpoint::has(const std::string& name) const { return tensors_.contains(name); }

void Checkpoint::require(const std::string& name, const std::vector<std::uint64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw_user_error(
        "{}: the checkpoint has no tensor {}, which its config.json asks for with shape {}; the two must be "
        "of the same model",
        folder_, in_quotes(name), shape_text(shape));
  }
  const SafetensorsFile& file = files_[found->second.file];
  const StoredTensor& stored = tensor(found->second);
  if (stored.shape != shape) {
    throw_user_error(
        "{}: tensor {} has shape {}, but config.json asks for {}; the two must be of the same model",
        file.path(), in_quotes(name), shape_text(stored.shape), shape_text(shape));
  }
  file.require_readable(stored);
}

void Checkpoint::read(const std::string& name, std::uint64_t first, std::uint64_t count, float* out) const {
  StopFlag::throw_if_requested();
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw std::logic_error("Checkpoint::read: there is no tensor " + in_quotes(name));
  files_[found->second.file].read(tensor(found->second), first, count, out);
}

std::vector<std::int64_t> Checkpoint::integers(const std::string& name, std::uint64_t count) const {
  const std::optional<StoredView> stored = view(name);
  if (!stored || stored->type != StoredType::kI64 || stored->elements != count)
    throw_user_error("{}: the checkpoint has no tensor {} of {} numbers of type I64, which its model needs",
                     folder_, in_quotes(name), count);
  std::vector<std::int64_t> out(count);
  std::memcpy(out.data(), stored->data, count * sizeof(std::int64_t));
  return out;
}

DequantisedSource::DequantisedSource(Checkpoint checkpoint, int gptq_zero_offset)
    : checkpoint_(std::move(checkpoint)), gptq_zero_offset_(gptq_zero_offset) {}

const QuantisedTensor* DequantisedSource::quantised(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(name);
  if (found != opened_.end()) return found->second.get();
  auto tensor = open_quantised([this](const std::string& part) { return checkpoint_.view(part); }, name,
                               gptq_zero_offset_, checkpoint_.folder());
  return opened_.emplace(name, std::move(tensor)).first->second.get();
}

bool DequantisedSource::has(const std::string& name) const {
  return checkpoint_.has(name) || quantised(name) != nullptr;
}

void DequantisedSource::require(const std::string& name, const std::vector<std::uint64_t>& shape) const {
  const QuantisedTensor* tensor = quantised(name);
  if (tensor == nullptr) return checkpoint_.require(name, shape);
  if (tensor->shape() == shape) return;
  throw_user_error(
      "{}: the quantised tensor {} makes up shape {}, but config.json asks for {}; the two must be of the "
      "same model",
      checkpoint_.folder(), rank::in_quotes(name), shape_text(tensor->shape()), shape_text(shape));
}

void DequantisedSource::read(const std::string& name, std::uint64_t first, std::uint64_t count,
                             float* out) const {
  const QuantisedTensor* tensor = quantised(name);
  if (tensor == nullptr) return checkpoint_.read(name, first, count, out);
  StopFlag::throw_if_requested();
  tensor->read(first, count, out);
}

std::vector<std::int64_t> DequantisedSource::integers(const std::string& name, std::uint64_t count) const {
  return checkpoint_.integers(name, count);
}

}  // namespace tpsim::rank
