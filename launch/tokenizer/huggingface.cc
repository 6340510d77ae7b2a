// tokenizer.json, read by Hugging Face's own `tokenizers` crate.
#include "launch/tokenizer/kinds.h"
#include "launch/tokenizer/library_tokenizer.h"

namespace tpsim::launch {

extern const TokenizerKind kHuggingFaceTokenizer;
const TokenizerKind kHuggingFaceTokenizer = {
    .name = "Hugging Face tokenizers",
    .file = "tokenizer.json",
    .missing = [] { return huggingface_library().missing; },
    .open =
        [](const std::filesystem::path& file, const TokenizerConfig& config) {
          return open_library_tokenizer(huggingface_library().functions,
                                        "tokenizer.json (Hugging Face tokenizers)", file, config);
        },
};

}  // namespace tpsim::launch
