#include "rank/cost/host.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>

#include "proto/base/error.h"
#include "rank/cost/json_message.h"

namespace tpsim::rank {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

// What is left out would be priced as nothing.
void check_given(const json& object, const Descriptor& message, const std::string& of) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto found = object.find(field.name());
    if (found == object.end()) throw_user_error("{}: \"{}\" is missing", of, field.name());
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && found->is_object())
      check_given(*found, *field.message_type(), fmt::format("{}: {}", of, field.name()));
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE &&
        !(found->is_number() && found->get<double>() >= 0 && found->get<double>() < 1e9))
      throw_user_error("{}: \"{}\" is {}; it must be a number from 0 to 1e9", of, field.name(),
                       found->dump());
  }
}

}  // namespace

proto::HostProfile parse_host(std::string_view text, const std::string& where) {
  const json object = parse_object(text, where, "a host profile", "rank/catalogue/hosts");
  check_given(object, *proto::HostProfile::descriptor(), where);
  proto::HostProfile host;
  read_message(object, where, "a host profile", host);
  if (host.version() != kHostProfileVersion)
    throw_user_error("{}: version {} is not known; this tpsim reads version {}", where, host.version(),
                     kHostProfileVersion);
  return host;
}

}  // namespace tpsim::rank
