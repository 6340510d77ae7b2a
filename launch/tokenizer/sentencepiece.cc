// tokenizer.model, read by Google's SentencePiece library.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "launch/tokenizer/kinds.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::uintmax_t kMostBytes = 256 << 20;

class SentencePiece : public Tokenizer {
 public:
  SentencePiece(const std::filesystem::path& file, const TokenizerConfig& config) : eos_ids_(config.eos_ids) {
    const auto status = processor_.LoadFromSerializedProto(read_model_file(file, kMostBytes));
    if (!status.ok())
      throw_user_error("{}: is not a SentencePiece model: {}", file.string(), status.message());
    bos_ = processor_.bos_id();
    const int eos = processor_.eos_id();
    if (eos < 0 || std::ranges::binary_search(eos_ids_, static_cast<std::uint32_t>(eos))) return;
    eos_ids_.push_back(static_cast<std::uint32_t>(eos));
    std::ranges::sort(eos_ids_);
  }

  const std::string& name() const override { return name_; }
  bool real() const override { return true; }
  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }
  std::span<const std::uint32_t> eos_ids() const override { return eos_ids_; }

  // Llama's and Mistral's way: the beginning of a text is a token, its end is not.
  std::vector<std::uint32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<int> pieces;
    const auto status = processor_.Encode(std::string(text), &pieces);
    std::vector<std::uint32_t> ids;
    if (!status.ok()) return ids;
    if (add_special && bos_ >= 0) ids.push_back(static_cast<std::uint32_t>(bos_));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
    return ids;
  }

  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    std::vector<std::string> pieces;
    for (const std::uint32_t id : ids) {
      if (id >= vocab_size()) continue;
      const int piece = static_cast<int>(id);
      if (skip_special && (processor_.IsControl(piece) || processor_.IsUnknown(piece))) continue;
      pieces.push_back(processor_.IdToPiece(piece));
    }
    std::string text;
    const auto status = processor_.Decode(pieces, &text);
    return status.ok() ? text : "";
  }

 private:
  const std::string name_ = "tokenizer.model (SentencePiece)";
  sentencepiece::SentencePieceProcessor processor_;
  int bos_ = -1;
  std::vector<std::uint32_t> eos_ids_;
};

}  // namespace

extern const TokenizerKind kSentencePieceTokenizer;
const TokenizerKind kSentencePieceTokenizer = {
    .name = "SentencePiece",
    .file = "tokenizer.model",
    .missing = [] { return std::string(); },
    .open = [](const std::filesystem::path& file, const TokenizerConfig& config)
        -> std::unique_ptr<Tokenizer> { return std::make_unique<SentencePiece>(file, config); },
};

}  // namespace tpsim::launch
