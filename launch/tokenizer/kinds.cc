#include "launch/tokenizer/kinds.h"

#include <array>

namespace tpsim::launch {

// huggingface.cc, sentencepiece.cc
extern const TokenizerKind kHuggingFaceTokenizer;
extern const TokenizerKind kSentencePieceTokenizer;

std::span<const TokenizerKind* const> tokenizer_kinds() {
  // A folder with both has the first from the second, and SGLang takes the first.
  static constexpr std::array<const TokenizerKind*, 2> kKinds = {&kHuggingFaceTokenizer,
                                                                 &kSentencePieceTokenizer};
  return kKinds;
}

}  // namespace tpsim::launch
