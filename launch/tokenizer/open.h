// The tokenizer and the chat template of a model folder, or what stands in for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/tokenizer.h"
#include "launch/tokenizer/tokenizer_config.h"
#include "launch/tokenizer/tokenizer_library.h"

namespace tpsim::launch {

// A tokenizer that a library of its own reads (tokenizer_library.h).
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

// The one list of them, in order of preference: open_tokenizer() follows it, and so do the tests.
std::span<const TokenizerKind> tokenizer_kinds();

struct OpenedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;  // never null
  std::shared_ptr<const ChatTemplate> chat;    // never null
  // Sentences for the log and /get_server_info: what is not real, and why; empty where all is.
  std::vector<std::string> notes;
};

// `folder`: SGLang's --tokenizer-path, else the model's folder; empty (a model of the catalogue has none) or
// without a tokenizer: the stand-ins. `vocab_size`: of the model, for the stand-in's ids. Throws UserError
// naming the file where one is there, can be read by this build, and is not what it should be.
OpenedTokenizer open_tokenizer(const std::filesystem::path& folder, std::uint32_t vocab_size);

}  // namespace tpsim::launch
