#include "launch/tokenizer/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

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

}  // namespace tpsim::launch
