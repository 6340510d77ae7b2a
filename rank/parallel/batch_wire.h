// Batches on the wire: many small frames packed into one message. Knows no MPI.
//
// A frame is one byte of kind, the payload's length (varint), and the payload. Numbers outside Protobuf are
// in the machine's own byte order: all processes of a run are the same program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/forward.pb.h"

namespace tpsim::rank {

enum class FrameKind : std::uint8_t {
  kSetup = 1,    // a run begins: RunSetup
  kBatch = 2,    // a serialized ForwardBatch
  kOutcome = 3,  // synchronous runs: Outcome of the batch before
  kShutdown = 4  // no more runs: exit status, 4 bytes
};

struct RunSetup {
  std::uint32_t run_index = 0;
  std::uint32_t synchronous = 0;
  std::uint64_t configuration_hash = 0;
};

struct Outcome {
  std::uint64_t sequence_number = 0;
  double arrival = 0;  // of the slowest rank
};

// FNV-1a, for RunSetup::configuration_hash.
std::uint64_t configuration_hash(std::string_view resolved_configuration);

// Packs frames into a buffer that keeps its capacity.
class MessageWriter {
 public:
  void clear();
  void add(const RunSetup& setup);
  void add(const proto::ForwardBatch& batch);
  void add(const Outcome& outcome);
  void add_shutdown(std::int32_t exit_status);

  std::span<const char> bytes() const { return bytes_; }
  std::uint32_t num_batches() const { return num_batches_; }
  bool empty() const { return bytes_.empty(); }

 private:
  // Appends a frame's head and room for its payload; returns where the payload goes.
  char* append(FrameKind kind, std::size_t payload_size);

  std::vector<char> bytes_;
  std::uint32_t num_batches_ = 0;
};

// Reads the frames of one message in order. Throws std::runtime_error where the message is damaged.
class MessageReader {
 public:
  // `message` must stay as it is while frames are read.
  explicit MessageReader(std::span<const char> message) : rest_(message) {}

  // Moves to the next frame. False at the end.
  bool next();
  FrameKind kind() const { return kind_; }
  // Of the current frame. REQUIRES: the kind fits.
  RunSetup setup() const;
  Outcome outcome() const;
  std::int32_t exit_status() const;
  void read(proto::ForwardBatch& batch) const;

 private:
  template <typename T>
  T copy() const;

  std::span<const char> rest_;
  std::span<const char> payload_;
  FrameKind kind_ = FrameKind::kShutdown;
};

}  // namespace tpsim::rank
