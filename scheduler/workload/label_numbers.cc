#include "scheduler/workload/label_numbers.h"

#include <cstring>
#include <utility>

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

std::size_t LabelNumbers::find(const Hash& hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash[0] & mask;
  while (slots_[at].number != 0 && slots_[at].hash != hash) at = (at + 1) & mask;
  return at;
}

void LabelNumbers::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 64 : slots_.size() * 2));
  for (const Slot& slot : old) {
    if (slot.number != 0) slots_[find(slot.hash)] = slot;
  }
}

std::uint32_t LabelNumbers::of(std::string_view label) {
  if (size_ * 3 >= slots_.size() * 2) grow();
  const Hash hash = hash_of(label);
  Slot& slot = slots_[find(hash)];
  if (slot.number == 0) {
    slot = {hash, ++last_};
    ++size_;
  }
  return slot.number;
}

void LabelNumbers::forget(std::string_view label) {
  if (slots_.empty()) return;
  const std::size_t mask = slots_.size() - 1;
  std::size_t free = find(hash_of(label));
  if (slots_[free].number == 0) return;
  --size_;
  // What stands behind it in the row moves up where it may.
  for (std::size_t at = (free + 1) & mask; slots_[at].number != 0; at = (at + 1) & mask) {
    const std::size_t wanted = slots_[at].hash[0] & mask;
    if (((at - wanted) & mask) < ((at - free) & mask)) continue;
    slots_[free] = slots_[at];
    free = at;
  }
  slots_[free].number = 0;
}

}  // namespace tpsim::scheduler
