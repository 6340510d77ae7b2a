#include "launch/serve/protocol/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "launch/serve/protocol/refusal.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;

// Messages, tools and their schemas nest; what nests deeper than this only means to exhaust a stack.
constexpr int kMostNesting = 64;

bool shallow(int depth, json::parse_event_t event, json&) {
  if (depth >= kMostNesting &&
      (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start))
    refuse_field("body", fmt::format("is nested more than {} levels deep", kMostNesting));
  return true;
}

}  // namespace

json parse_json_object(std::string_view body) {
  json value;
  try {
    value = json::parse(body, shallow);
  } catch (const json::exception& error) {
    // Its text ends with what was read, which may be any bytes.
    const auto* parse_error = dynamic_cast<const json::parse_error*>(&error);
    refuse_field("body", parse_error != nullptr
                             ? fmt::format("JSON decode error at byte {}", parse_error->byte)
                             : std::string("JSON decode error: a number is out of range"));
  }
  if (!value.is_object()) refuse_field("body", "must be a JSON object");
  return value;
}

JsonFields::JsonFields(const json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const json* JsonFields::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::boolean(std::string_view name, bool otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_field(path(name), "Input should be a valid boolean");
  return value->get<bool>();
}

std::optional<std::int64_t> JsonFields::integer(std::string_view name, std::int64_t least,
                                                std::int64_t most) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = whole_number(*value, least, most);
  if (!number)
    refuse_field(path(name), fmt::format("Input should be a valid integer from {} to {}", least, most));
  return number;
}

std::optional<double> JsonFields::real(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_field(path(name), "Input should be a valid number");
  return value->get<double>();
}

std::optional<std::string> JsonFields::text(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_field(path(name), "Input should be a valid string");
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::texts(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  std::vector<std::string> all;
  if (value->is_array()) {
    for (const json& entry : *value) {
      if (!entry.is_string()) break;
      all.push_back(entry.get<std::string>());
    }
    if (all.size() == value->size()) return all;
  }
  refuse_field(path(name), "Input should be a string or a list of strings");
}

std::vector<std::uint32_t> JsonFields::ids(std::string_view name) const {
  const json* value = find(name);
  return value == nullptr ? std::vector<std::uint32_t>{} : token_ids(*value, path(name));
}

std::optional<std::int64_t> whole_number(const json& value, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto positive = value.get<std::uint64_t>();
    if (positive > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    number = static_cast<std::int64_t>(positive);
  } else if (value.is_number_integer()) {
    number = value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    constexpr double kExact = 9007199254740992.0;
    const double real = value.get<double>();
    if (!(std::abs(real) <= kExact) || real != std::floor(real)) return std::nullopt;
    number = static_cast<std::int64_t>(real);
  } else {
    return std::nullopt;
  }
  if (number < least || number > most) return std::nullopt;
  return number;
}

std::vector<std::uint32_t> token_ids(const json& value, std::string_view field) {
  if (!value.is_array()) refuse_field(field, "Input should be a list of token ids");
  std::vector<std::uint32_t> ids;
  ids.reserve(value.size());
  for (const json& entry : value) {
    const auto id = whole_number(entry, 0, std::numeric_limits<std::uint32_t>::max());
    if (!id) refuse_field(field, "Input should be a list of token ids, whole numbers from 0");
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
  return ids;
}

void append_escaped(std::string_view text, std::string& out) {
  const std::string quoted = json_string(text);
  out.append(quoted, 1, quoted.size() - 2);
}

std::string json_string(std::string_view text) {
  return json(text).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

}  // namespace tpsim::launch
