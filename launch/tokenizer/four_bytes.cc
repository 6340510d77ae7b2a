#include <algorithm>
#include <cstddef>
#include <string>

#include "launch/tokenizer/tokenizer.h"

namespace tpsim::launch {
namespace {

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

std::unique_ptr<Tokenizer> four_bytes_a_token(std::uint32_t vocab_size) {
  return std::make_unique<FourBytes>(vocab_size);
}

}  // namespace tpsim::launch
