// What turns the messages of /v1/chat/completions into the text of a prompt: the model's own Jinja template
// (chat_template.jinja, or chat_template of tokenizer_config.json), as transformers' apply_chat_template
// renders it, or where there is none or no Jinja is built in, a plain one that says so.
#pragma once

#include <memory>
#include <string>

#include "launch/tokenizer/tokenizer_config.h"

namespace tpsim::launch {

struct ChatRequest {
  std::string messages;                 // JSON array of OpenAI's messages, as the client sent it
  std::string tools = "";               // JSON array; empty: none
  std::string template_arguments = "";  // JSON object (SGLang's chat_template_kwargs); empty: none
  bool add_generation_prompt = true;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // "chat_template.jinja", "tokenizer_config.json's chat_template", "ROLE: TEXT lines".
  virtual const std::string& name() const = 0;
  virtual bool real() const = 0;
  // The prompt, to be encoded without special tokens where real(), with them where not. Contents that are
  // lists of parts become a text where the template expects one, by SGLang's rule. Throws UserError with a
  // sentence for the client where the messages are not such, or the template refuses them (raise_exception).
  virtual std::string apply(const ChatRequest& request) const = 0;
};

// Rendered by minijinja, which the library of huggingface/ holds.
// Empty where templates can be rendered; else a sentence's end: what is missing, and what would bring it.
std::string jinja_missing();
// Throws UserError naming `file` where a template is not Jinja. REQUIRES: jinja_missing() is empty, there is
// a template.
std::unique_ptr<ChatTemplate> open_jinja_chat(const TokenizerConfig& config, const std::string& file);

}  // namespace tpsim::launch
