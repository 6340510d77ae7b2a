#include "launch/tokenizer/open.h"

#include <fmt/format.h>

#include <utility>

#include "launch/tokenizer/chat_messages.h"
#include "launch/tokenizer/kinds.h"
#include "launch/tokenizer/tokenizer.h"
#include "launch/tokenizer/tokenizer_config.h"

namespace tpsim::launch {
namespace {

class PlainChat : public ChatTemplate {
 public:
  const std::string& name() const override { return name_; }
  bool real() const override { return false; }
  std::string apply(const ChatRequest& request) const override {
    return plain_chat(request.messages, request.add_generation_prompt);
  }

 private:
  const std::string name_ = "ROLE: TEXT lines";
};

}  // namespace

OpenedTokenizer open_tokenizer(const std::filesystem::path& folder, std::uint32_t vocab_size) {
  OpenedTokenizer opened;
  TokenizerConfig config;
  std::string why = "the model has no folder with a tokenizer";
  if (!folder.empty()) {
    config = read_tokenizer_config(folder);
    why = fmt::format("{} has no tokenizer.json or tokenizer.model", folder.string());
    std::string unread;
    for (const TokenizerKind& kind : tokenizer_kinds()) {
      const std::filesystem::path file = folder / kind.file;
      if (!std::filesystem::exists(file)) continue;
      const std::string missing = kind.missing();
      if (missing.empty()) {
        opened.tokenizer = kind.open(file, config);
        break;
      }
      unread += fmt::format("{}{}: {}", unread.empty() ? "" : "; ", file.string(), missing);
    }
    if (!unread.empty()) why = std::move(unread);
  }
  if (opened.tokenizer == nullptr) {
    opened.tokenizer = four_bytes_a_token(vocab_size);
    opened.notes.push_back(fmt::format("texts are counted as one token for four bytes: {}", why));
  }

  why = folder.empty()
            ? "the model has no folder with a chat template"
            : fmt::format("{} has no chat_template.jinja, and no chat_template in tokenizer_config.json",
                          folder.string());
  if (!config.chat_templates.empty()) {
    const std::string missing = jinja_missing();
    if (missing.empty()) {
      opened.chat = open_jinja_chat(config, (folder / config.chat_template_file).string());
      return opened;
    }
    why = fmt::format("{}: {}", (folder / config.chat_template_file).string(), missing);
  }
  opened.chat = std::make_shared<PlainChat>();
  opened.notes.push_back(fmt::format("chats are laid out as \"ROLE: TEXT\" lines: {}", why));
  return opened;
}

}  // namespace tpsim::launch
