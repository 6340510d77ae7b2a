// tokenizer.json, read by Hugging Face's own `tokenizers` crate.
#include <algorithm>
#include <utility>

#include "launch/tokenizer/huggingface_library.h"
#include "launch/tokenizer/kinds.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::uintmax_t kMostBytes = 256 << 20;  // Gemma 3's has 33 million

void take_text(void* text, const void* data, std::size_t count) {
  static_cast<std::string*>(text)->assign(static_cast<const char*>(data), count);
}

void take_ids(void* ids, const void* data, std::size_t count) {
  const auto* first = static_cast<const std::uint32_t*>(data);
  static_cast<std::vector<std::uint32_t>*>(ids)->assign(first, first + count);
}

class HuggingFace : public Tokenizer {
 public:
  HuggingFace(const std::filesystem::path& file, const TokenizerConfig& config)
      : library_(*huggingface_library()), eos_ids_(config.eos_ids) {
    const std::string json = read_model_file(file, kMostBytes);
    std::string error;
    handle_ = library_.open(json.data(), json.size(), take_text, &error);
    if (handle_ == nullptr) throw_user_error("{}: {}", file.string(), error);
    vocab_size_ = library_.vocab_size(handle_);
    const auto eos = config.special_tokens.find("eos_token");
    if (eos == config.special_tokens.end()) return;
    const std::int64_t id = library_.token_to_id(handle_, eos->second.data(), eos->second.size());
    if (id < 0 || std::ranges::binary_search(eos_ids_, static_cast<std::uint32_t>(id))) return;
    eos_ids_.push_back(static_cast<std::uint32_t>(id));
    std::ranges::sort(eos_ids_);
  }
  ~HuggingFace() override { library_.close(handle_); }
  HuggingFace(const HuggingFace&) = delete;
  HuggingFace& operator=(const HuggingFace&) = delete;

  const std::string& name() const override { return name_; }
  bool real() const override { return true; }
  std::uint32_t vocab_size() const override { return vocab_size_; }
  std::span<const std::uint32_t> eos_ids() const override { return eos_ids_; }

  std::vector<std::uint32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<std::uint32_t> ids;
    library_.encode(handle_, text.data(), text.size(), add_special, take_ids, &ids);
    return ids;
  }

  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    std::string text;
    library_.decode(handle_, ids.data(), ids.size(), skip_special, take_text, &text);
    return text;
  }

 private:
  const HuggingFaceLibrary& library_;
  const std::string name_ = "tokenizer.json (Hugging Face tokenizers)";
  void* handle_ = nullptr;
  std::uint32_t vocab_size_ = 0;
  std::vector<std::uint32_t> eos_ids_;
};

}  // namespace

extern const TokenizerKind kHuggingFaceTokenizer;
const TokenizerKind kHuggingFaceTokenizer = {
    .name = "Hugging Face tokenizers",
    .file = "tokenizer.json",
    .missing = [] { return huggingface_library() == nullptr ? huggingface_missing() : std::string(); },
    .open = [](const std::filesystem::path& file, const TokenizerConfig& config)
        -> std::unique_ptr<Tokenizer> { return std::make_unique<HuggingFace>(file, config); },
};

}  // namespace tpsim::launch
