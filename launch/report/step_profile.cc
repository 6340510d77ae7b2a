#include "launch/report/step_profile.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using Coded = google::protobuf::io::CodedOutputStream;

constexpr double kMicro = 1e6;

std::uint64_t micros_of(double seconds) { return static_cast<std::uint64_t>(std::llround(seconds * kMicro)); }

}  // namespace

void StepProfile::Block::add(const Block& other) {
  prefill_seconds += other.prefill_seconds;
  decode_seconds += other.decode_seconds;
  mixed_seconds += other.mixed_seconds;
  extend_tokens += other.extend_tokens;
  decode_tokens += other.decode_tokens;
  steps += other.steps;
}

void StepProfile::add(const scheduler::StepRecord& step) {
  Block block;
  block.start = step.start_time;
  double& seconds = step.forward_mode == proto::DECODE || step.forward_mode == proto::TARGET_VERIFY
                        ? block.decode_seconds
                    : step.forward_mode == proto::MIXED ? block.mixed_seconds
                                                        : block.prefill_seconds;
  seconds = step.step_time;
  block.extend_tokens = step.extend_tokens;
  block.decode_tokens = step.decode_tokens;
  block.steps = 1;
  ++steps_;
  if (!blocks_.empty() && blocks_.back().steps < steps_per_block_) {
    blocks_.back().add(block);
    return;
  }
  if (blocks_.size() == kMaxBlocks) coarsen();
  if (blocks_.empty()) blocks_.reserve(kMaxBlocks);  // nothing is moved, and what is not used takes no memory
  blocks_.push_back(block);
}

void StepProfile::coarsen() {
  for (std::size_t i = 0; i < blocks_.size(); i += 2) {
    Block joined = blocks_[i];
    if (i + 1 < blocks_.size()) joined.add(blocks_[i + 1]);
    blocks_[i / 2] = joined;
  }
  blocks_.resize((blocks_.size() + 1) / 2);
  steps_per_block_ *= 2;
}

std::string StepProfile::encoded() const {
  constexpr std::size_t kNumbers = 7;     // of a block
  constexpr std::size_t kMostBytes = 10;  // of a number
  std::array<std::uint8_t, kNumbers * kMostBytes> row;
  std::string bytes;
  bytes.reserve(blocks_.size() * 10);
  std::uint64_t position = 0;  // of the reader's clock, in whole microseconds: roundings do not add up
  for (const Block& block : blocks_) {
    const auto start = micros_of(block.start);
    const std::uint64_t gap = start > position ? start - position : 0;
    std::uint8_t* at = Coded::WriteVarint64ToArray(gap, row.data());
    position += gap;
    for (const double seconds : {block.prefill_seconds, block.decode_seconds, block.mixed_seconds}) {
      const auto micros = micros_of(seconds);
      at = Coded::WriteVarint64ToArray(micros, at);
      position += micros;
    }
    at = Coded::WriteVarint64ToArray(block.extend_tokens, at);
    at = Coded::WriteVarint64ToArray(block.decode_tokens, at);
    at = Coded::WriteVarint64ToArray(block.steps == steps_per_block_ ? 0 : block.steps, at);
    bytes.append(row.data(), at);
  }
  return base64(bytes);
}

}  // namespace tpsim::launch
