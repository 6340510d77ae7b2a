#include "launch/report/step_profile.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tpsim::launch {
namespace {

constexpr double kMicro = 1e6;

void put_number(std::uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.resize(bytes.size() / 3 * 4);
  std::size_t i = 0;
  for (std::size_t at = 0; at < out.size(); i += 3, at += 4) {
    const auto byte = [&](std::size_t k) { return std::uint32_t{static_cast<unsigned char>(bytes[i + k])}; };
    const std::uint32_t three = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (std::size_t k = 0; k < 4; ++k) out[at + k] = kDigits[three >> (18 - 6 * k) & 63];
  }
  for (; i < bytes.size(); i += 3) {  // the rest is filled up
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += k <= count ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

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
  std::string bytes;
  bytes.reserve(blocks_.size() * 10);
  std::uint64_t position = 0;  // of the reader's clock, in whole microseconds: roundings do not add up
  for (const Block& block : blocks_) {
    const auto start = static_cast<std::uint64_t>(std::llround(block.start * kMicro));
    const std::uint64_t gap = start > position ? start - position : 0;
    put_number(gap, bytes);
    position += gap;
    for (const double seconds : {block.prefill_seconds, block.decode_seconds, block.mixed_seconds}) {
      const auto micros = static_cast<std::uint64_t>(std::llround(seconds * kMicro));
      put_number(micros, bytes);
      position += micros;
    }
    put_number(block.extend_tokens, bytes);
    put_number(block.decode_tokens, bytes);
    put_number(block.steps == steps_per_block_ ? 0 : block.steps, bytes);
  }
  return base64(bytes);
}

}  // namespace tpsim::launch
