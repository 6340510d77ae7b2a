#include <map>
#include <nlohmann/json.hpp>

#include "launch/tokenizer/chat_messages.h"
#include "launch/tokenizer/chat_template.h"
#include "launch/tokenizer/tokenizer_library.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

// One template, compiled.
class Compiled {
 public:
  Compiled(const std::string& source, const std::string& file)
      : library_(jinja_library().functions), parts_(expects_parts(source)) {
    std::string error;
    handle_ = library_.open(source.data(), source.size(), take_text, &error);
    if (handle_ == nullptr) throw_user_error("{}: chat template: {}", file, error);
  }
  ~Compiled() { library_.close(handle_); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  bool parts() const { return parts_; }
  std::string render(const std::string& variables) const {
    std::string text;
    if (!library_.render(handle_, variables.data(), variables.size(), take_text, &text))
      throw_user_error("the chat template refuses the messages: {}", text);
    return text;
  }

 private:
  const TemplateLibrary& library_;
  const bool parts_;
  void* handle_ = nullptr;
};

class JinjaChat : public ChatTemplate {
 public:
  JinjaChat(const TokenizerConfig& config, const std::string& file)
      : name_(config.chat_template_file), special_tokens_(config.special_tokens) {
    for (const auto& [name, source] : config.chat_templates) templates_.try_emplace(name, source, file);
  }

  const std::string& name() const override { return name_; }
  bool real() const override { return true; }

  std::string apply(const ChatRequest& request) const override {
    const Compiled& compiled = chosen(!request.tools.empty());
    // JSON texts are put together here, since the library parses them again in any case. Of a name that comes
    // twice it takes the last: so do keyword arguments in Transformers, where the request's own come last.
    std::string variables = "{";
    for (const auto& [name, token] : special_tokens_)
      variables += nlohmann::json(name).dump() + ":" + nlohmann::json(token).dump() + ",";
    variables += "\"messages\":" + prepare_messages(request.messages, compiled.parts());
    variables += ",\"tools\":" + (request.tools.empty() ? "null" : request.tools) + ",\"documents\":null";
    variables += ",\"add_generation_prompt\":";
    variables += request.add_generation_prompt ? "true" : "false";
    if (!request.template_arguments.empty()) {
      const ShallowJson arguments = parse_shallow_json(request.template_arguments, "chat_template_kwargs");
      if (!arguments.is_object()) throw UserError("chat_template_kwargs must be an object");
      for (const auto& [name, value] : arguments.items())
        variables += "," + ShallowJson(name).dump() + ":" + value.dump();
    }
    return compiled.render(variables + "}");
  }

 private:
  // As Transformers: "tool_use" where tools are given and there is one, else "default", else the only one.
  const Compiled& chosen(bool tools) const {
    if (const auto found = templates_.find("tool_use"); tools && found != templates_.end())
      return found->second;
    const auto found = templates_.find("default");
    return found != templates_.end() ? found->second : templates_.begin()->second;
  }

  const std::string name_;
  const std::map<std::string, std::string> special_tokens_;
  std::map<std::string, Compiled> templates_;
};

}  // namespace

std::string jinja_missing() { return jinja_library().missing; }

std::unique_ptr<ChatTemplate> open_jinja_chat(const TokenizerConfig& config, const std::string& file) {
  return std::make_unique<JinjaChat>(config, file);
}

}  // namespace tpsim::launch
