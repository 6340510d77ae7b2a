// What turns the messages of /v1/chat/completions into the text of a prompt: the model's own Jinja template
// (chat_template.jinja, or chat_template of tokenizer_config.json), as transformers' apply_chat_template
// renders it, or where there is none or no Jinja is built in, a plain one that says so.
#pragma once

#include <memory>
#include <string>

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

}  // namespace tpsim::launch
