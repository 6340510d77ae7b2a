// JSON of the plain kind that machines write: no escapes and only ASCII in its texts, no deep nesting. It is
// read several times as fast as nlohmann's parser does; all else, and everything that is wrong, is left to
// that one.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tpsim::scheduler {

// It tells the handler what nlohmann's sax_parse() would, texts as views, but of an array of whole numbers:
// handler.unsigneds(numbers) calls numbers(vector, or null where it does not want them), which appends them
// all, and returns whether it took them.
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
    if (handler_.unsigneds([this](std::vector<std::uint64_t>* values) { return unsigneds(values); }))
      return true;
    handler_.start_array(0);
    if (next_is(']')) return handler_.end_array();
    do {
      if (!value(depth + 1)) return false;
    } while (next_is(','));
    return next_is(']') && handler_.end_array();
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
      skip();
      const char* const first = at;
      std::uint64_t whole = 0;
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

}  // namespace tpsim::scheduler
