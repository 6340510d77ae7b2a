// The tokenizer and the chat template of a model folder, or what stands in for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/tokenizer.h"

namespace tpsim::launch {

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
