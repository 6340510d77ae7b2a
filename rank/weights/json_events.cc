#include "rank/weights/json_events.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

using Kind = JsonEvent::Kind;

// nlohmann's events as ours.
class Adapter {
 public:
  Adapter(const std::string& where, const std::function<void(const JsonEvent&)>& handler)
      : where_(where), handler_(handler) {}

  bool null() { return send(Kind::kNull); }
  bool boolean(bool) { return send(Kind::kOther); }
  bool number_integer(std::int64_t) { return send(Kind::kOther); }
  bool number_unsigned(std::uint64_t value) { return send(Kind::kUnsigned, {}, value); }
  bool number_float(double, const std::string&) { return send(Kind::kOther); }
  bool string(const std::string& value) { return send(Kind::kString, value); }
  bool binary(std::vector<std::uint8_t>&) { return send(Kind::kOther); }
  bool key(const std::string& value) { return send(Kind::kKey, value); }
  bool start_object(std::size_t) { return send(Kind::kBeginObject); }
  bool end_object() { return send(Kind::kEndObject); }
  bool start_array(std::size_t) { return send(Kind::kBeginArray); }
  bool end_array() { return send(Kind::kEndArray); }
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    throw_user_error("{} is not valid JSON from byte {} on; the file is damaged, copy or download it again",
                     where_, position == 0 ? 0 : position - 1);
  }

 private:
  bool send(Kind kind, std::string_view text = {}, std::uint64_t number = 0) {
    handler_({kind, text, number});
    return true;
  }

  const std::string& where_;
  const std::function<void(const JsonEvent&)>& handler_;
};

}  // namespace

bool JsonEvent::begins_value() const {
  return kind != Kind::kKey && kind != Kind::kEndObject && kind != Kind::kEndArray;
}

void parse_json_events(std::string_view text, const std::string& where,
                       const std::function<void(const JsonEvent&)>& handler) {
  // The parser takes a zero byte for the end of the text, and would not see what is behind it.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw_user_error("{} has a zero byte at byte {}; it must be JSON text", where, zero);
  }
  Adapter adapter(where, handler);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &adapter);
}

}  // namespace tpsim::rank
