// Messages as JSON: field names as in the .proto, in field order, every single field present, numbers as
// numbers (64-bit integers too), doubles in their shortest exact form.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace tpsim::launch {

nlohmann::ordered_json to_json(const google::protobuf::Message& message);

}  // namespace tpsim::launch
