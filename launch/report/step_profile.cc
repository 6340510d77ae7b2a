#include "launch/report/step_profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tpsim::launch {
namespace {

constexpr double kMicro = 1e6;

// Seconds from 0 up in whole microseconds, as llround() says.
std::uint64_t micros_of(double seconds) {
  const double micros = seconds * kMicro;
  if (!(micros < 0x1p52)) return static_cast<std::uint64_t>(std::llround(micros));
  const auto whole = static_cast<std::int64_t>(micros);
  return static_cast<std::uint64_t>(whole + (micros - static_cast<double>(whole) >= 0.5 ? 1 : 0));
}

constexpr std::size_t kMostBytes = 10;  // of a number

// Returns what is behind the number.
char* put_number(std::uint64_t value, char* at) {
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<char>(value | 0x80);
  *at++ = static_cast<char>(value);
  return at;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  // Two digits for each 12 bits.
  static const std::array<std::array<char, 2>, 4096> pairs = [&] {
    std::array<std::array<char, 2>, 4096> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = {kDigits[i >> 6], kDigits[i & 63]};
    return all;
  }();
  const std::size_t whole = bytes.size() / 3 * 3;
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  char* at = out.data();
  for (std::size_t i = 0; i < whole; i += 3, at += 4) {
    const auto byte = [&](std::size_t k) { return std::uint32_t{static_cast<unsigned char>(bytes[i + k])}; };
    const std::uint32_t three = byte(0) << 16 | byte(1) << 8 | byte(2);
    std::memcpy(at, pairs[three >> 12].data(), 2);
    std::memcpy(at + 2, pairs[three & 4095].data(), 2);
  }
  if (const std::size_t rest = bytes.size() - whole; rest > 0) {  // it is filled up
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (k < rest ? static_cast<unsigned char>(bytes[whole + k]) : 0);
    for (std::size_t k = 0; k <= rest; ++k) at[k] = kDigits[three >> (18 - 6 * k) & 63];
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
  constexpr std::size_t kNumbers = 7;  // of a block
  std::array<char, kNumbers * kMostBytes> row;
  std::string bytes;
  bytes.reserve(blocks_.size() * 10);
  std::uint64_t position = 0;  // of the reader's clock, in whole microseconds: roundings do not add up
  for (const Block& block : blocks_) {
    const auto start = micros_of(block.start);
    const std::uint64_t gap = start > position ? start - position : 0;
    char* at = put_number(gap, row.data());
    position += gap;
    for (const double seconds : {block.prefill_seconds, block.decode_seconds, block.mixed_seconds}) {
      const auto micros = micros_of(seconds);
      at = put_number(micros, at);
      position += micros;
    }
    at = put_number(block.extend_tokens, at);
    at = put_number(block.decode_tokens, at);
    at = put_number(block.steps == steps_per_block_ ? 0 : block.steps, at);
    bytes.append(row.data(), at);
  }
  return base64(bytes);
}

}  // namespace tpsim::launch
