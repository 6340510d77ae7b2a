#include "launch/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

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

}  // namespace tpsim::launch
