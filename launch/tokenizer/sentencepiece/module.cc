// The functions of launch/tokenizer/tokenizer_library.h for Google's SentencePiece; this file sees no other
// of ours.
#include <sentencepiece_processor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Sink = void (*)(void* context, const void* data, std::size_t count);
using sentencepiece::SentencePieceProcessor;

SentencePieceProcessor& of(void* tokenizer) { return *static_cast<SentencePieceProcessor*>(tokenizer); }

bool fail(std::string_view sentence, Sink error, void* context) {
  error(context, sentence.data(), sentence.size());
  return false;
}

}  // namespace

extern "C" {

std::uint32_t tpsim_sp_version() { return 2; }  // kVersion of tokenizer_library.cc

void* tpsim_sp_open(const char* bytes, std::size_t size, Sink error, void* context) try {
  auto processor = std::make_unique<SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(absl::string_view(bytes, size));
  if (status.ok()) return processor.release();
  fail("is not a SentencePiece model: " + status.ToString(), error, context);
  return nullptr;
} catch (const std::exception& thrown) {
  fail(thrown.what(), error, context);
  return nullptr;
}

void tpsim_sp_close(void* tokenizer) { delete &of(tokenizer); }

std::uint32_t tpsim_sp_vocab_size(void* tokenizer) {
  return static_cast<std::uint32_t>(of(tokenizer).GetPieceSize());
}

std::int64_t tpsim_sp_token_to_id(void* tokenizer, const char* token, std::size_t size) {
  const int id = of(tokenizer).PieceToId(absl::string_view(token, size));
  return id == of(tokenizer).unk_id() ? -1 : id;
}

std::int64_t tpsim_sp_eos_id(void* tokenizer) { return of(tokenizer).eos_id(); }

// Llama's and Mistral's way: the beginning of a text is a token, its end is not.
bool tpsim_sp_encode(void* tokenizer, const char* text, std::size_t size, bool add_special, Sink sink,
                     void* context) try {
  std::vector<int> pieces;
  const auto status = of(tokenizer).Encode(absl::string_view(text, size), &pieces);
  if (!status.ok()) return fail(status.ToString(), sink, context);
  std::vector<std::uint32_t> ids;
  ids.reserve(pieces.size() + 1);
  if (add_special && of(tokenizer).bos_id() >= 0)
    ids.push_back(static_cast<std::uint32_t>(of(tokenizer).bos_id()));
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  sink(context, ids.data(), ids.size());
  return true;
} catch (const std::exception& thrown) {
  return fail(thrown.what(), sink, context);
}

bool tpsim_sp_decode(void* tokenizer, const std::uint32_t* ids, std::size_t count, bool skip_special,
                     Sink sink, void* context) try {
  const SentencePieceProcessor& processor = of(tokenizer);
  const auto known = static_cast<std::uint32_t>(processor.GetPieceSize());
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    if (ids[i] >= known) continue;
    const int id = static_cast<int>(ids[i]);
    if (skip_special && (processor.IsControl(id) || processor.IsUnknown(id))) continue;
    pieces.push_back(processor.IdToPiece(id));
  }
  std::string text;
  const auto status = processor.Decode(pieces, &text);
  if (!status.ok()) return fail(status.ToString(), sink, context);
  sink(context, text.data(), text.size());
  return true;
} catch (const std::exception& thrown) {
  return fail(thrown.what(), sink, context);
}

}  // extern "C"
