// A recorded stream of batches: written by `tpsim run --record-batches`, read by `tpsim replay`.
//
// The file is a BatchStreamHeader and then ForwardBatch messages, each after its length as a varint.
#pragma once

#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "launch/deployment/deployment.h"
#include "proto/base/output_file.h"
#include "proto/forward.pb.h"
#include "scheduler/executor.h"

namespace tpsim::launch {

proto::BatchStreamHeader stream_header(const Deployment& deployment, const std::string& trace);

class BatchStreamWriter {
 public:
  // Throws UserError naming --record-batches where the file cannot be made.
  BatchStreamWriter(const std::filesystem::path& file, const proto::BatchStreamHeader& header);
  void add(const proto::ForwardBatch& batch);
  // Puts the file in place; without it, nothing is left.
  void commit();

 private:
  void write(const google::protobuf::MessageLite& message);

  OutputFile file_;
  std::string buffer_;
};

// Passes batches on to `inner` and records them.
class RecordingExecutor : public scheduler::Executor {
 public:
  RecordingExecutor(scheduler::Executor& inner, BatchStreamWriter& writer) : inner_(inner), writer_(writer) {}
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override {
    writer_.add(batch);
    return inner_.forward(batch);
  }

 private:
  scheduler::Executor& inner_;
  BatchStreamWriter& writer_;
};

class BatchStreamReader {
 public:
  // Throws UserError naming the file where it is missing, no recorded stream, or of another version.
  explicit BatchStreamReader(std::filesystem::path file);

  const proto::BatchStreamHeader& header() const { return header_; }
  // False at the end. Throws UserError, with the number of the batch, where the file is damaged or cut off.
  bool next(proto::ForwardBatch& batch);
  // Share of the file that was read, 0 to 1.
  double progress() const;

 private:
  std::filesystem::path file_;
  std::optional<google::protobuf::io::FileInputStream> input_;
  proto::BatchStreamHeader header_;
  std::uint64_t batches_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tpsim::launch
