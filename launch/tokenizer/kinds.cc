#include "launch/tokenizer/kinds.h"

#include <fmt/format.h>

#include <array>

#include "launch/tokenizer/library_tokenizer.h"

namespace tpsim::launch {

std::string TokenizerKind::missing() const { return library().missing; }

std::unique_ptr<Tokenizer> TokenizerKind::open(const std::filesystem::path& path,
                                               const TokenizerConfig& config) const {
  return open_library_tokenizer(library().functions, fmt::format("{} ({})", file, name), path, config);
}

std::span<const TokenizerKind> tokenizer_kinds() {
  // A folder with both has the first from the second, and SGLang takes the first.
  static constexpr std::array<TokenizerKind, 2> kKinds = {{
      {"Hugging Face tokenizers", "tokenizer.json", huggingface_library},
      {"SentencePiece", "tokenizer.model", sentencepiece_library},
  }};
  return kKinds;
}

}  // namespace tpsim::launch
