#include "rank/cost/json_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

// One value of a field that is repeated, or is not.
bool read_value(const json& value, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      if (!value.is_number()) return false;
      const auto number = value.get<double>();
      repeated ? reflection.AddDouble(&message, &field, number)
               : reflection.SetDouble(&message, &field, number);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      if (!value.is_number_unsigned()) return false;
      const auto number = value.get<std::uint64_t>();
      if (number > std::numeric_limits<std::uint32_t>::max()) return false;
      const auto narrow = static_cast<std::uint32_t>(number);
      repeated ? reflection.AddUInt32(&message, &field, narrow)
               : reflection.SetUInt32(&message, &field, narrow);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      if (!value.is_number_unsigned()) return false;
      const auto number = value.get<std::uint64_t>();
      repeated ? reflection.AddUInt64(&message, &field, number)
               : reflection.SetUInt64(&message, &field, number);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean() || repeated) return false;
      reflection.SetBool(&message, &field, value.get<bool>());
      return true;
    case FieldDescriptor::CPPTYPE_STRING: {
      if (!value.is_string() || field.type() != FieldDescriptor::TYPE_STRING) return false;
      const auto& text = value.get_ref<const std::string&>();
      repeated ? reflection.AddString(&message, &field, text) : reflection.SetString(&message, &field, text);
      return true;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      // Well-known types have spellings of their own.
      if (field.message_type()->file()->package() == "google.protobuf") return false;
      return read_json(value, repeated ? *reflection.AddMessage(&message, &field)
                                       : *reflection.MutableMessage(&message, &field));
    default:
      return false;
  }
}

// A map is read as the repeated entries that it is on the wire.
bool read_map(const json& object, const FieldDescriptor& field, Message& message) {
  const FieldDescriptor& key_field = *field.message_type()->map_key();
  const FieldDescriptor& value_field = *field.message_type()->map_value();
  if (!object.is_object() || key_field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return false;
  for (const auto& [key, value] : object.items()) {
    Message& entry = *message.GetReflection()->AddMessage(&message, &field);
    entry.GetReflection()->SetString(&entry, &key_field, key);
    if (!read_value(value, value_field, entry)) return false;
  }
  return true;
}

}  // namespace

bool read_json(const json& json, Message& message) {
  if (!json.is_object()) return false;
  for (const auto& [name, value] : json.items()) {
    const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr || field->real_containing_oneof() != nullptr) return false;
    if (field->is_map()) {
      if (!read_map(value, *field, message)) return false;
      continue;
    }
    if (!field->is_repeated()) {
      if (!read_value(value, *field, message)) return false;
      continue;
    }
    if (!value.is_array()) return false;
    for (const nlohmann::json& element : value)
      if (!read_value(element, *field, message)) return false;
  }
  return true;
}

void read_message(const json& json, const std::string& where, std::string_view kind, Message& message) {
  if (read_json(json, message)) return;
  message.Clear();
  // The text has been parsed: a repeated key has been reduced to its last value.
  const auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &message);
  if (!status.ok()) throw_user_error("{}: not {}: {}", where, kind, std::string(status.message()));
}

json parse_object(std::string_view text, const std::string& where, std::string_view kind,
                  std::string_view examples) {
  auto parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object())
    throw_user_error("{}: not {}: not a JSON object, as those of {} are", where, kind, examples);
  return parsed;
}

std::string small_file(const std::string& path, const std::string& where, std::string_view kind) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) > (1 << 20) && !error)
    throw_user_error("{}: larger than 1 MiB; that is not {}", path, kind);
  std::ifstream stream(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream && !stream.eof()) throw_user_error("{} {}: cannot be read", where, path);
  return text;
}

}  // namespace tpsim::rank
