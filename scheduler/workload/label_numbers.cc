#include "scheduler/workload/label_numbers.h"

#include <cstring>

#include "proto/base/random.h"

namespace tpsim::scheduler {
namespace {

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = mix64(seed + text.size());
  for (; !text.empty(); text.remove_prefix(text.size() < 8 ? text.size() : 8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), text.size() < 8 ? text.size() : 8);
    hash = mix64(hash ^ word) * kGoldenGamma + seed;
  }
  return mix64(hash);
}

}  // namespace

LabelNumbers::Hash LabelNumbers::hash_of(std::string_view label) {
  return {hash_text(label, 0x243F6A8885A308D3ULL), hash_text(label, 0x13198A2E03707344ULL)};
}

std::uint32_t LabelNumbers::of(std::string_view label) {
  const auto [known, is_new] = numbers_.try_emplace(hash_of(label), last_ + 1);
  if (is_new) ++last_;
  return known->second;
}

}  // namespace tpsim::scheduler
