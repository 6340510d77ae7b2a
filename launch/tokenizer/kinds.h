// Tokenizers that libraries of their own read (tokenizer_library.h): the one list of them, in order of
// preference; open.h follows it, and so do the tests.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "launch/tokenizer/tokenizer.h"
#include "launch/tokenizer/tokenizer_config.h"
#include "launch/tokenizer/tokenizer_library.h"

namespace tpsim::launch {

struct TokenizerKind {
  std::string_view name;  // "Hugging Face tokenizers"
  std::string_view file;  // of a model folder: "tokenizer.json"
  const Loaded<TokenizerLibrary>& (*library)();

  // Empty where this build can read such files; else a sentence's end: what is missing, and what would bring
  // it.
  std::string missing() const;
  // `config`: what the folder's other files say. Throws UserError naming the file. REQUIRES: missing() is
  // empty.
  std::unique_ptr<Tokenizer> open(const std::filesystem::path& path, const TokenizerConfig& config) const;
};

std::span<const TokenizerKind> tokenizer_kinds();

}  // namespace tpsim::launch
