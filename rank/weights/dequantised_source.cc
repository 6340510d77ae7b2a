#include "rank/weights/dequantised_source.h"

#include <utility>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/weights/stored_type.h"

namespace tpsim::rank {

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
