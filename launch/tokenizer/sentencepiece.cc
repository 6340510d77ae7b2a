// tokenizer.model, read by Google's SentencePiece library.
#include "launch/tokenizer/kinds.h"
#include "launch/tokenizer/library_tokenizer.h"

namespace tpsim::launch {

extern const TokenizerKind kSentencePieceTokenizer;
const TokenizerKind kSentencePieceTokenizer = {
    .name = "SentencePiece",
    .file = "tokenizer.model",
    .missing = [] { return sentencepiece_library().missing; },
    .open =
        [](const std::filesystem::path& file, const TokenizerConfig& config) {
          return open_library_tokenizer(sentencepiece_library().functions, "tokenizer.model (SentencePiece)",
                                        file, config);
        },
};

}  // namespace tpsim::launch
