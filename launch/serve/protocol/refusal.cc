#include "launch/serve/protocol/refusal.h"

#include <fmt/format.h>

#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {

void refuse_field(std::string_view field, std::string_view sentence) {
  throw Refusal(400, "Bad Request", fmt::format("{}: {}", field, sentence));
}

void refuse_value(const std::string& sentence) { throw Refusal(400, "BadRequestError", sentence); }

std::string error_body(ErrorStyle style, unsigned status, std::string_view type, std::string_view message) {
  if (style == ErrorStyle::kPlain)
    return fmt::format(R"({{"error":{{"message":{}}}}})", json_string(message));
  return fmt::format(R"({{"object":"error","message":{},"type":{},"param":null,"code":{}}})",
                     json_string(message), json_string(type), status);
}

}  // namespace tpsim::launch
