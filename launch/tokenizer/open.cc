#include "launch/tokenizer/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "launch/tokenizer/chat_messages.h"
#include "launch/tokenizer/tokenizer.h"
#include "launch/tokenizer/tokenizer_config.h"
#include "proto/base/error.h"

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

constexpr std::uintmax_t kMostBytes = 256 << 20;  // Gemma 3's tokenizer.json has 33 million

void take_ids(void* ids, const void* data, std::size_t count) {
  const auto* first = static_cast<const std::uint32_t*>(data);
  static_cast<std::vector<std::uint32_t>*>(ids)->assign(first, first + count);
}

class LibraryTokenizer : public Tokenizer {
 public:
  LibraryTokenizer(const TokenizerLibrary& library, std::string name, const std::filesystem::path& file,
                   const TokenizerConfig& config)
      : library_(library), name_(std::move(name)), eos_ids_(config.eos_ids) {
    const std::string bytes = read_model_file(file, kMostBytes);
    std::string error;
    handle_ = library_.open(bytes.data(), bytes.size(), take_text, &error);
    if (handle_ == nullptr) throw_user_error("{}: {}", file.string(), error);
    vocab_size_ = library_.vocab_size(handle_);
    add_eos(library_.eos_id(handle_));
    const auto named = config.special_tokens.find("eos_token");
    if (named != config.special_tokens.end())
      add_eos(library_.token_to_id(handle_, named->second.data(), named->second.size()));
  }
  ~LibraryTokenizer() override { library_.close(handle_); }
  LibraryTokenizer(const LibraryTokenizer&) = delete;
  LibraryTokenizer& operator=(const LibraryTokenizer&) = delete;

  const std::string& name() const override { return name_; }
  bool real() const override { return true; }
  std::uint32_t vocab_size() const override { return vocab_size_; }
  std::span<const std::uint32_t> eos_ids() const override { return eos_ids_; }

  std::vector<std::uint32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<std::uint32_t> ids;
    const bool made = library_.encode(handle_, text.data(), text.size(), add_special, take_ids, &ids);
    return made ? ids : std::vector<std::uint32_t>();
  }

  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    std::string text;
    const bool made = library_.decode(handle_, ids.data(), ids.size(), skip_special, take_text, &text);
    return made ? text : std::string();
  }

 private:
  void add_eos(std::int64_t id) {
    if (id < 0 || std::ranges::binary_search(eos_ids_, static_cast<std::uint32_t>(id))) return;
    eos_ids_.push_back(static_cast<std::uint32_t>(id));
    std::ranges::sort(eos_ids_);
  }

  const TokenizerLibrary library_;
  const std::string name_;
  void* handle_ = nullptr;
  std::uint32_t vocab_size_ = 0;
  std::vector<std::uint32_t> eos_ids_;
};

}  // namespace

std::string TokenizerKind::missing() const { return library().missing; }

std::unique_ptr<Tokenizer> TokenizerKind::open(const std::filesystem::path& path,
                                               const TokenizerConfig& config) const {
  return std::make_unique<LibraryTokenizer>(library().functions, fmt::format("{} ({})", file, name), path,
                                            config);
}

std::span<const TokenizerKind> tokenizer_kinds() {
  // A folder with both has the first from the second, and SGLang takes the first.
  static constexpr std::array<TokenizerKind, 2> kKinds = {{
      {"Hugging Face tokenizers", "tokenizer.json", huggingface_library},
      {"SentencePiece", "tokenizer.model", sentencepiece_library},
  }};
  return kKinds;
}

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
