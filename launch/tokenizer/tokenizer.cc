#include "launch/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace tpsim::launch {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD: bytes that are no character, or not yet

bool is_inside(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char byte) { return !is_inside(byte); }));
}

// SGLang's way (managers/detokenizer_manager.py): an id's text may depend on the ids before it (a space that
// only the first lacks, bytes that make one character), so what is new is the difference of two short
// decodings.
class DifferenceStream : public TextStream {
 public:
  DifferenceStream(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string push(std::uint32_t id) override {
    ids_.push_back(id);
    std::string text = tokenizer_.decode(ids_, skip_special_);
    const bool whole = !text.ends_with(kReplacement) || ids_.size() - shown_ids_ > kMostHeld;
    std::string piece = whole ? behind_shown(text) : "";
    if (piece.empty()) return "";
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(shown_ids_));
    shown_ids_ = ids_.size();
    shown_text_ = tokenizer_.decode(ids_, skip_special_);
    return piece;
  }

  std::string finish() override { return behind_shown(tokenizer_.decode(ids_, skip_special_)); }

 private:
  // As many characters as were shown are left out, not as many bytes: ids that are no text can turn what was
  // shown into U+FFFD afterwards.
  std::string behind_shown(const std::string& text) const {
    std::size_t at = 0;
    for (std::size_t left = characters(shown_text_); at < text.size() && left > 0; --left) {
      do ++at;
      while (at < text.size() && is_inside(text[at]));
    }
    return text.substr(at);
  }

  // An id may end one character and begin the next, so that several are held; not for ever, for ids may be no
  // text.
  static constexpr std::size_t kMostHeld = 16;

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::vector<std::uint32_t> ids_;  // of the last piece, and those that came since
  std::size_t shown_ids_ = 0;       // of the last piece
  std::string shown_text_;          // theirs
};

// A space and visible ASCII.
bool is_plain(std::string_view text) {
  return text.size() > 1 && text[0] == ' ' &&
         std::ranges::all_of(text.substr(1), [](char c) { return c > ' ' && c < '\x7F'; });
}

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
constexpr std::uint32_t kTexts = 64 * 64 * 64;  // " aaa" to " ___"

// The number of a text such as " aBc"; kTexts: not one.
std::uint32_t number_of(std::string_view four) {
  if (four.size() != 4 || four[0] != ' ') return kTexts;
  std::uint32_t number = 0;
  for (const char letter : four.substr(1)) {
    const std::size_t digit = kLetters.find(letter);
    if (digit == std::string_view::npos) return kTexts;
    number = number * 64 + static_cast<std::uint32_t>(digit);
  }
  return number;
}

class FourBytes : public Tokenizer {
 public:
  explicit FourBytes(std::uint32_t vocab_size) : vocab_size_(vocab_size) {}

  const std::string& name() const override { return name_; }
  bool real() const override { return false; }
  std::uint32_t vocab_size() const override { return vocab_size_; }
  std::span<const std::uint32_t> eos_ids() const override { return {}; }

  std::vector<std::uint32_t> encode(std::string_view text, bool) const override {
    std::vector<std::uint32_t> ids;
    ids.reserve((text.size() + 3) / 4);
    for (std::size_t at = 0; at < text.size(); at += 4) ids.push_back(id_of(text.substr(at, 4)));
    return ids;
  }

  std::string decode(std::span<const std::uint32_t> ids, bool) const override {
    std::string text;
    text.reserve(ids.size() * 4);
    for (const std::uint32_t id : ids) {
      if (id >= vocab_size_) continue;
      text += ' ';
      for (const std::uint32_t shift : {12U, 6U, 0U}) text += kLetters[id >> shift & 63];
    }
    return text;
  }

 private:
  std::uint32_t id_of(std::string_view four) const {
    if (const std::uint32_t number = number_of(four); number < std::min(kTexts, vocab_size_)) return number;
    // FNV-1a: all that matters is that different texts seldom have the same id.
    std::uint32_t hash = 2166136261U;
    for (const char byte : four) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
    return hash % vocab_size_;
  }

  const std::string name_ = "four bytes a token";
  const std::uint32_t vocab_size_;
};

}  // namespace

std::unique_ptr<TextStream> Tokenizer::stream(bool skip_special) const {
  return std::make_unique<DifferenceStream>(*this, skip_special);
}

std::vector<std::uint32_t> stand_in_ids(const Tokenizer& tokenizer, std::size_t most) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < tokenizer.vocab_size() && ids.size() < most; ++id) {
    // Behind itself: a lone id loses its space in some vocabularies.
    const std::array<std::uint32_t, 2> twice = {id, id};
    const std::string once = tokenizer.decode(std::span(twice).first(1), true);
    const std::string text = tokenizer.decode(twice, true);
    if (text.size() <= once.size() || std::ranges::binary_search(tokenizer.eos_ids(), id)) continue;
    if (is_plain(std::string_view(text).substr(once.size()))) ids.push_back(id);
  }
  if (ids.empty()) ids.push_back(0);
  return ids;
}

std::unique_ptr<Tokenizer> four_bytes_a_token(std::uint32_t vocab_size) {
  return std::make_unique<FourBytes>(vocab_size);
}

}  // namespace tpsim::launch
