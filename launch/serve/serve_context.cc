#include "launch/serve/serve_context.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "proto/base/random.h"

namespace tpsim::launch {
namespace {

// Words of one stretch of the vocabulary, before the next begins.
constexpr std::uint32_t kStretch = 16;

std::uint64_t mix(std::uint64_t x) { return mix64(x + kGoldenGamma); }

}  // namespace

InventedAnswers::InventedAnswers(const Tokenizer& tokenizer, std::uint32_t vocab_size)
    : ids_(stand_in_ids(tokenizer)) {
  std::erase_if(ids_, [vocab_size](std::uint32_t id) { return vocab_size > 0 && id >= vocab_size; });
  if (ids_.empty()) ids_.push_back(0);
  std::sort(ids_.begin(), ids_.end());
  for (const std::uint32_t id : ids_) {
    // After itself: a lone id loses its space in some vocabularies.
    const std::array<std::uint32_t, 2> twice = {id, id};
    const std::string once = tokenizer.decode(std::span(twice).first(1), true);
    const std::string both = tokenizer.decode(twice, true);
    texts_[id] = both.substr(std::min(once.size(), both.size()));
  }
}

kvcache::TokenSequence InventedAnswers::tokens(std::uint64_t seed, std::uint32_t count) const {
  kvcache::TokenSequence sequence;
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i % kStretch == 0) at = mix(seed * 0x100000001B3 + i) % ids_.size();
    sequence.append({ids_[at], 1});
    at = (at + 1) % ids_.size();
  }
  return sequence;
}

std::string_view InventedAnswers::text(std::uint32_t id) const {
  const auto found = texts_.find(id);
  return found == texts_.end() ? std::string_view() : found->second;
}

}  // namespace tpsim::launch
