// A request that is not carried out, and how its client is told.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tpsim::launch {

// Which of SGLang's error bodies.
enum class ErrorStyle {
  kPlain,   // {"error":{"message":...}}: what /generate answers to a wrong value
  kOpenAi,  // {"object":"error","message":...,"type":...,"param":null,"code":...}: all else
};

class Refusal : public std::runtime_error {
 public:
  Refusal(unsigned status_code, std::string error_type, const std::string& sentence)
      : std::runtime_error(sentence), status(status_code), type(std::move(error_type)) {}

  unsigned status;
  std::string type;  // of kOpenAi
  // The call asked for a stream, in which /generate says what is wrong with a value.
  bool in_stream = false;
};

// A field that is missing or no such thing, in SGLang found before the request is looked at as a whole.
[[noreturn]] void refuse_field(std::string_view field, std::string_view sentence);
// A value that the server does not accept (a ValueError in SGLang).
[[noreturn]] void refuse_value(const std::string& sentence);

std::string error_body(ErrorStyle style, unsigned status, std::string_view type, std::string_view message);

}  // namespace tpsim::launch
