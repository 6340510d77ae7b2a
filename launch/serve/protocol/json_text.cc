#include "launch/serve/protocol/json_text.h"

#include <nlohmann/json.hpp>

namespace tpsim::launch {

void append_escaped(std::string_view text, std::string& out) {
  const std::string quoted = json_string(text);
  out.append(quoted, 1, quoted.size() - 2);
}

std::string json_string(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

}  // namespace tpsim::launch
