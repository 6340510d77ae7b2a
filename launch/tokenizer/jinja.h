// Chat templates rendered by minijinja, which the library of huggingface/ holds.
#pragma once

#include <memory>
#include <string>

#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/tokenizer_config.h"

namespace tpsim::launch {

// Empty where templates can be rendered; else a sentence's end: what is missing, and what would bring it.
std::string jinja_missing();
// Throws UserError naming `file` where a template is not Jinja. REQUIRES: jinja_missing() is empty, there is
// a template.
std::unique_ptr<ChatTemplate> open_jinja_chat(const TokenizerConfig& config, const std::string& file);

}  // namespace tpsim::launch
