// JSON of the plain kind that machines write: no escapes and only ASCII in its texts, no deep nesting. It is
// read several times as fast as nlohmann's parser does; all else, and everything that is wrong, is left to
// that one.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tpsim {

// It tells the handler what nlohmann's sax_parse() would, texts as views. One with unsigneds(numbers) is
// given an array of whole numbers at once: it calls numbers(vector, or null where it does not want them) and
// returns whether it took them.
template <typename Handler>
class PlainJson {
 public:
  PlainJson(std::string_view text, Handler& handler)
      : at_(text.data()), end_(text.data() + text.size()), handler_(handler) {}

  // False: not read to its end; what the handler was told is void.
  bool parse() {
    if (!value(0)) return false;
    skip_space();
    return at_ == end_;
  }

 private:
  static constexpr int kDeepest = 8;
  static constexpr std::ptrdiff_t kMostDigits = 19;  // that 64 bits hold, whatever they are

  // Positions are moved in copies: what they point to might be the position itself, as far as a compiler
  // knows.
  void skip_space() {
    const char* at = at_;
    while (at != end_ && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) ++at;
    at_ = at;
  }
  bool next_is(char expected) {
    skip_space();
    if (at_ == end_ || *at_ != expected) return false;
    ++at_;
    return true;
  }
  bool digit() const { return at_ != end_ && *at_ >= '0' && *at_ <= '9'; }

  bool value(int depth) {
    skip_space();
    if (at_ == end_ || depth > kDeepest) return false;
    switch (*at_) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return text() && handler_.string(text_);
      case 't':
        return literal("true") && handler_.boolean(true);
      case 'f':
        return literal("false") && handler_.boolean(false);
      case 'n':
        return literal("null") && handler_.null();
      default:
        return number();
    }
  }

  bool object(int depth) {
    ++at_;
    handler_.start_object(0);
    if (next_is('}')) return handler_.end_object();
    do {
      skip_space();
      if (!text()) return false;
      handler_.key(text_);
      if (!next_is(':') || !value(depth + 1)) return false;
    } while (next_is(','));
    return next_is('}') && handler_.end_object();
  }

  bool array(int depth) {
    ++at_;
    const auto numbers = [this](std::vector<std::uint64_t>* values) { return unsigneds(values); };
    if constexpr (requires { handler_.unsigneds(numbers); }) {
      if (handler_.unsigneds(numbers)) return true;
    }
    handler_.start_array(0);
    if (next_is(']')) return handler_.end_array();
    do {
      if (!value(depth + 1)) return false;
    } while (next_is(','));
    return next_is(']') && handler_.end_array();
  }

  // Of the eight bytes at `at`, how many at their beginning are digits, and their number: all eight in one
  // word.
  static int leading_digits(const char* at, std::uint64_t& number) {
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
    constexpr std::uint64_t kEach = 0x0101010101010101;
    const std::uint64_t values = word ^ ('0' * kEach);  // 0 to 9 of digits
    // The highest bit of every byte that is above 9.
    const std::uint64_t others = (((values & (0x7f * kEach)) + 0x76 * kEach) | values) & (0x80 * kEach);
    const int digits = others == 0 ? 8 : std::countr_zero(others) / 8;
    if (digits == 0) return 0;
    // The first digit is the lowest byte: zeros go below it, and pairs, fours and eights are put together.
    std::uint64_t sum = values << (8 * (8 - digits));
    sum = (sum * 10 + (sum >> 8)) & 0x00ff00ff00ff00ff;
    sum = (sum * 100 + (sum >> 16)) & 0x0000ffff0000ffff;
    number = (sum * 10000 + (sum >> 32)) & 0xffffffff;
    return digits;
  }

  // What is left of an array of whole numbers, most of what a trace is made of. False, and nothing read,
  // where something else is in it.
  bool unsigneds(std::vector<std::uint64_t>* values) {
    const char* at = at_;
    const auto byte = [&] { return at != end_ ? *at : '\0'; };
    const auto skip = [&] {
      while (byte() == ' ') ++at;
    };
    for (bool more = true; more; ++at) {
      // As machines write them: up to seven digits, a comma, perhaps a space.
      constexpr std::ptrdiff_t kPlain = 10;
      while (end_ - at > kPlain) {
        std::uint64_t whole = 0;
        const int digits = leading_digits(at, whole);
        if (digits == 0 || digits == 8 || at[digits] != ',' || (*at == '0' && digits > 1)) break;
        if (values != nullptr) values->push_back(whole);
        at += digits + 1;
        at += *at == ' ' ? 1 : 0;
      }
      skip();
      const char* const first = at;
      std::uint64_t whole = 0;
      if (end_ - at >= 8) at += leading_digits(at, whole);
      for (unsigned char digit; (digit = static_cast<unsigned char>(byte() - '0')) <= 9; ++at)
        whole = 10 * whole + digit;
      const std::ptrdiff_t digits = at - first;
      if (digits == 0 || digits > kMostDigits || (*first == '0' && digits > 1)) return false;
      skip();
      more = byte() == ',';
      if (!more && byte() != ']') return false;
      if (values != nullptr) values->push_back(whole);
    }
    at_ = at;
    return true;
  }

  bool text() {
    if (at_ == end_ || *at_ != '"') return false;
    const char* const first = at_ + 1;
    const char* at = first;
    while (at != end_ && *at != '"' && *at != '\\' && *at >= ' ' && *at <= '~') ++at;
    at_ = at;
    if (at == end_ || *at != '"') return false;
    text_ = {first, at};
    ++at_;
    return true;
  }

  bool literal(std::string_view name) {
    if (static_cast<std::size_t>(end_ - at_) < name.size() || !std::equal(name.begin(), name.end(), at_))
      return false;
    at_ += name.size();
    return true;
  }

  bool number() {
    const char* const begin = at_;
    const bool negative = at_ != end_ && *at_ == '-';
    const char* const first = begin + (negative ? 1 : 0);
    const char* at = first;
    std::uint64_t whole = 0;
    for (; at != end_; ++at) {
      const auto digit = static_cast<unsigned char>(*at - '0');
      if (digit > 9) break;
      whole = 10 * whole + digit;
    }
    at_ = at;
    const std::ptrdiff_t digits = at - first;
    if (digits == 0 || digits > kMostDigits || (*first == '0' && digits > 1)) return false;
    if (at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E')) {
      if (!negative) return handler_.number_unsigned(whole);
      return digits < kMostDigits && handler_.number_integer(-static_cast<std::int64_t>(whole));
    }
    if (*at_ == '.') {
      ++at_;
      if (!skip_digits()) return false;
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!skip_digits()) return false;
    }
    double real = 0;
    const auto [end, error] = std::from_chars(begin, at_, real);
    return error == std::errc() && end == at_ && handler_.number_float(real, {});
  }
  bool skip_digits() {
    if (!digit()) return false;
    while (digit()) ++at_;
    return true;
  }

  const char* at_;
  const char* const end_;
  Handler& handler_;
  std::string_view text_;  // that was read last
};

// Builds what Json::parse() would.
template <typename Json>
class JsonBuilder {
 public:
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string_view value) { return put(std::string(value)); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string_view name) {
    slot_ = &(*open_.back())[std::string(name)];
    return true;
  }

 private:
  Json& place(Json&& value) {
    if (open_.empty()) return root_ = std::move(value);
    if (!open_.back()->is_array()) return *slot_ = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }
  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  Json* slot_ = nullptr;  // of the key that was read last
  std::vector<Json*> open_;
};

// Json::parse(text, nullptr, allow_exceptions), fast where the text is plain.
template <typename Json>
Json parse_json(std::string_view text, bool allow_exceptions = true) {
  JsonBuilder<Json> builder;
  if (PlainJson<JsonBuilder<Json>>(text, builder).parse()) return builder.take();
  return Json::parse(text, nullptr, allow_exceptions);
}

}  // namespace tpsim
