#include "launch/lab/measurements/server_args_text.h"

#include <cstddef>
#include <string>

namespace tpsim::launch {
namespace {

using Json = nlohmann::json;

// Where the value that begins at `at` ends: at the comma or bracket after it, none of those within quotes or
// brackets of its own.
std::size_t end_of_value(std::string_view text, std::size_t at, const scheduler::Place& place) {
  int depth = 0;
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == '\\') ++at;
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
    } else if (depth > 0 && (c == ']' || c == '}' || c == ')')) {
      --depth;
    } else if (depth == 0 && (c == ',' || c == ')')) {
      return at;
    }
  }
  place.fail("server_args has no end; the whole line of the log is needed");
}

// Null for None, and for what JSON has nothing of.
Json value_of(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()) {
    std::string plain;
    for (std::size_t i = 1; i + 1 < text.size(); ++i) {
      if (text[i] == '\\' && i + 2 < text.size()) ++i;
      plain += text[i];
    }
    return plain;
  }
  Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : Json();
}

}  // namespace

Json read_server_args(std::string_view text, const scheduler::Place& place) {
  Json out = Json::object();
  for (std::size_t at = 0; at < text.size() && text[at] != ')';) {
    const std::size_t equals = text.find('=', at);
    if (equals == std::string_view::npos)
      place.fail("server_args is cut; the whole line of the log is needed");
    const std::size_t end = end_of_value(text, equals + 1, place);
    out[std::string(text.substr(at, equals - at))] = value_of(text.substr(equals + 1, end - equals - 1));
    at = end;
    while (at < text.size() && (text[at] == ',' || text[at] == ' ')) ++at;
  }
  return out;
}

}  // namespace tpsim::launch
