#include "launch/serve/protocol/answer_format.h"

#include <fmt/format.h>

#include <iterator>

#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {

std::string_view FinishReason::type() const {
  switch (kind) {
    case Kind::kStop:
      return "stop";
    case Kind::kLength:
      return "length";
    case Kind::kAbort:
      return "abort";
  }
  return "";
}

std::string FinishReason::json() const {
  switch (kind) {
    case Kind::kStop:
      return fmt::format(R"({{"type":"stop","matched":{}}})", matched.empty() ? "null" : matched);
    case Kind::kLength:
      return fmt::format(R"({{"type":"length","length":{}}})", length);
    case Kind::kAbort:
      break;
  }
  if (status == 0)
    return fmt::format(R"({{"type":"abort","message":{},"status_code":null,"err_type":null}})",
                       json_string(message));
  return fmt::format(R"({{"type":"abort","message":{},"status_code":{},"err_type":{}}})",
                     json_string(message), status, json_string(error_type));
}

void Answer::add_id(std::uint32_t token) {
  if (!ids.empty()) ids += ',';
  fmt::format_to(std::back_inserter(ids), "{}", token);
}

}  // namespace tpsim::launch
