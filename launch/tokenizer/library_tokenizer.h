// A tokenizer that a library of its own reads (tokenizer_library.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "launch/tokenizer/tokenizer.h"
#include "launch/tokenizer/tokenizer_config.h"
#include "launch/tokenizer/tokenizer_library.h"

namespace tpsim::launch {

// `library` stays as long as the tokenizer. Throws UserError naming the file where it is none of the
// library's.
std::unique_ptr<Tokenizer> open_library_tokenizer(const TokenizerLibrary& library, std::string name,
                                                  const std::filesystem::path& file,
                                                  const TokenizerConfig& config);

}  // namespace tpsim::launch
