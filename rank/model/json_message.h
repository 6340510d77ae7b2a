// Reads JSON into a Protobuf message by reflection, several times as fast as Protobuf's own reader: hardware
// profiles are read by every command.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>

namespace tpsim::rank {

// Takes what profiles consist of: objects, arrays, texts, booleans, doubles and whole numbers in fields of
// such kinds, by the names of proto files. False where there is anything else; `message` is then half filled,
// and Protobuf's reader says whether it is wrong and why.
bool read_json(const nlohmann::json& json, google::protobuf::Message& message);

}  // namespace tpsim::rank
