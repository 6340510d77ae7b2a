// JSON of clients: parsed only where it is not so deep that walking through it would overflow the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "proto/base/error.h"

namespace tpsim::launch {

// Keys keep the order in which the client sent them, as in Python: a template may print them.
using ShallowJson = nlohmann::ordered_json;

// is_discarded() where `text` is not JSON. Throws UserError naming `what` where it is nested deeper than 100
// levels.
inline ShallowJson parse_shallow_json(const std::string& text, std::string_view what) {
  constexpr int kDeepest = 100;
  const auto keep = [&](int depth, ShallowJson::parse_event_t, ShallowJson&) {
    if (depth > kDeepest) throw_user_error("{}: nested deeper than {} levels", what, kDeepest);
    return true;
  };
  return ShallowJson::parse(text, keep, /*allow_exceptions=*/false);
}

}  // namespace tpsim::launch
