#include "rank/parallel/batch_wire.h"

#include <google/protobuf/io/coded_stream.h>

#include <cstring>
#include <stdexcept>

#include "proto/base/hash.h"

namespace tpsim::rank {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

std::uint64_t configuration_hash(std::string_view resolved_configuration) {
  return fnv1a(resolved_configuration);
}

void MessageWriter::clear() {
  bytes_.clear();
  num_batches_ = 0;
}

char* MessageWriter::append(FrameKind kind, std::size_t payload_size) {
  std::uint8_t head[6];
  head[0] = static_cast<std::uint8_t>(kind);
  const std::uint8_t* const head_end =
      CodedOutputStream::WriteVarint32ToArray(static_cast<std::uint32_t>(payload_size), head + 1);
  const std::size_t head_size = static_cast<std::size_t>(head_end - head);
  const std::size_t start = bytes_.size();
  bytes_.resize(start + head_size + payload_size);
  std::memcpy(bytes_.data() + start, head, head_size);
  return bytes_.data() + start + head_size;
}

void MessageWriter::add(const RunSetup& setup) {
  std::memcpy(append(FrameKind::kSetup, sizeof setup), &setup, sizeof setup);
}

void MessageWriter::add(const proto::ForwardBatch& batch) {
  char* const payload = append(FrameKind::kBatch, batch.ByteSizeLong());
  batch.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(payload));
  ++num_batches_;
}

void MessageWriter::add(const Outcome& outcome) {
  std::memcpy(append(FrameKind::kOutcome, sizeof outcome), &outcome, sizeof outcome);
}

void MessageWriter::add_shutdown(std::int32_t exit_status) {
  std::memcpy(append(FrameKind::kShutdown, sizeof exit_status), &exit_status, sizeof exit_status);
}

bool MessageReader::next() {
  if (rest_.empty()) return false;
  kind_ = static_cast<FrameKind>(rest_[0]);
  CodedInputStream head(reinterpret_cast<const std::uint8_t*>(rest_.data()) + 1,
                        static_cast<int>(rest_.size() - 1));
  std::uint32_t size = 0;
  if (kind_ < FrameKind::kSetup || kind_ > FrameKind::kShutdown || !head.ReadVarint32(&size)) {
    throw std::runtime_error("a message between processes has a damaged frame");
  }
  const std::size_t head_size = 1 + static_cast<std::size_t>(head.CurrentPosition());
  if (size > rest_.size() - head_size) {
    throw std::runtime_error("a message between processes ends within a frame");
  }
  payload_ = rest_.subspan(head_size, size);
  rest_ = rest_.subspan(head_size + size);
  return true;
}

template <typename T>
T MessageReader::copy() const {
  if (payload_.size() != sizeof(T)) throw std::runtime_error("a frame between processes has a wrong size");
  T value;
  std::memcpy(&value, payload_.data(), sizeof value);
  return value;
}

RunSetup MessageReader::setup() const { return copy<RunSetup>(); }
Outcome MessageReader::outcome() const { return copy<Outcome>(); }
std::int32_t MessageReader::exit_status() const { return copy<std::int32_t>(); }

void MessageReader::read(proto::ForwardBatch& batch) const {
  if (!batch.ParseFromArray(payload_.data(), static_cast<int>(payload_.size()))) {
    throw std::runtime_error("a ForwardBatch between processes cannot be parsed");
  }
}

}  // namespace tpsim::rank
