#include "launch/lab/calibrate/profile_text.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tpsim::calibrate {
namespace {

using Json = nlohmann::ordered_json;

bool is_empty(const Json& value) {
  return value.is_string() ? value.get_ref<const std::string&>().empty()
                           : value.is_structured() && value.empty();
}

void print(const Json& value, std::size_t indent, std::string& out) {
  const bool flat = value.is_array() && std::none_of(value.begin(), value.end(),
                                                     [](const Json& item) { return item.is_structured(); });
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  const std::string line = flat ? " " : "\n" + std::string(indent + 2, ' ');
  out += value.is_array() ? "[" : "{";
  bool first = true;
  for (const auto& item : value.items()) {
    if (!value.is_array() && is_empty(item.value())) continue;
    if (!first) out += ",";
    if (!flat || !first) out += line;
    first = false;
    if (!value.is_array()) out += Json(item.key()).dump() + ": ";
    print(item.value(), indent + 2, out);
  }
  if (!flat && !first) out += "\n" + std::string(indent, ' ');
  out += value.is_array() ? "]" : "}";
}

}  // namespace

std::string profile_text(const proto::HardwareProfile& profile) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;  // a constant that is missing is refused
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(profile, &json, options).ok())
    throw std::logic_error("a hardware profile cannot be written");
  Json ordered = Json::parse(json);
  // A map's order is Protobuf's whim.
  for (Json& entry : ordered["efficiencies"])
    if (entry.contains("parameters")) entry["parameters"] = Json(nlohmann::json(entry["parameters"]));
  std::string out;
  print(ordered, 0, out);
  return out + "\n";
}

}  // namespace tpsim::calibrate
