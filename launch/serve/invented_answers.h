// Answers that nobody computed: ids of real words of the vocabulary, in an order that nobody means anything
// by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvcache/token_runs.h"
#include "launch/tokenizer/tokenizer.h"

namespace tpsim::launch {

class InventedAnswers {
 public:
  // `vocab_size` of the model: ids are below it.
  InventedAnswers(const Tokenizer& tokenizer, std::uint32_t vocab_size);

  // `count` ids, the same for the same `seed`; the answers of two seeds soon differ. The ids of neighbours
  // follow each other, so that there are fewer runs than tokens.
  kvcache::TokenSequence tokens(std::uint64_t seed, std::uint32_t count) const;
  // What an id of them adds to a text.
  std::string_view text(std::uint32_t id) const;

 private:
  std::vector<std::uint32_t> ids_;  // ascending
  std::unordered_map<std::uint32_t, std::string> texts_;
};

}  // namespace tpsim::launch
