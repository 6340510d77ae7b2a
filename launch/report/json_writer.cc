#include "launch/report/json_writer.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::launch {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json single(const Message& message, const Reflection& reflection, const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(reflection.GetMessage(message, &field));
    default:
      throw std::logic_error("report messages have no field of the type of " + field.full_name());
  }
}

Json element(const Message& message, const Reflection& reflection, const FieldDescriptor& field, int i) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetRepeatedUInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetRepeatedUInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number(reflection.GetRepeatedDouble(message, &field, i));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetRepeatedString(message, &field, i);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(reflection.GetRepeatedMessage(message, &field, i));
    default:
      throw std::logic_error("report messages have no repeated field of the type of " + field.full_name());
  }
}

// Maps of strings, by key: protobuf keeps them in no order.
Json string_map(const Message& message, const Reflection& reflection, const FieldDescriptor& field) {
  std::vector<std::pair<std::string, Json>> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    entries.emplace_back(entry.GetReflection()->GetString(entry, entry.GetDescriptor()->field(0)),
                         single(entry, *entry.GetReflection(), *entry.GetDescriptor()->field(1)));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Json json = Json::object();
  for (auto& [key, value] : entries) json[key] = std::move(value);
  return json;
}

}  // namespace

Json to_json(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
    fields.push_back(message.GetDescriptor()->field(i));
  std::sort(fields.begin(), fields.end(),
            [](const FieldDescriptor* a, const FieldDescriptor* b) { return a->number() < b->number(); });
  Json json = Json::object();
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) {
      json[field->name()] = string_map(message, reflection, *field);
    } else if (field->is_repeated()) {
      if (field->options().GetExtension(proto::omit_empty) && reflection.FieldSize(message, field) == 0)
        continue;
      Json list = Json::array();
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        list.push_back(element(message, reflection, *field, i));
      }
      json[field->name()] = std::move(list);
    } else if (field->options().GetExtension(proto::omit_empty) && !reflection.HasField(message, field)) {
      continue;
    } else if (field->has_optional_keyword() && !reflection.HasField(message, field)) {
      if (field->options().GetExtension(proto::omit_empty)) continue;
      json[field->name()] = nullptr;
    } else {
      json[field->name()] = single(message, reflection, *field);
    }
  }
  return json;
}

}  // namespace tpsim::launch
