// Reads JSON into a Protobuf message by reflection, several times as fast as Protobuf's own reader: hardware
// profiles are read by every command. And what stands around that: files, and sentences for what is wrong.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tpsim::rank {

// Takes what profiles consist of: objects, arrays, texts, booleans, doubles and whole numbers in fields of
// such kinds, by the names of proto files. False where there is anything else; `message` is then half filled,
// and Protobuf's reader says whether it is wrong and why.
bool read_json(const nlohmann::json& json, google::protobuf::Message& message);
// Either of the two.
// Throws UserError "`where`: not `kind`: why".
void read_message(const nlohmann::json& json, const std::string& where, std::string_view kind,
                  google::protobuf::Message& message);

// `text` as the object that it is. Throws UserError as above, naming `examples`, a folder of such files.
nlohmann::json parse_object(std::string_view text, const std::string& where, std::string_view kind,
                            std::string_view examples);
// The text of a file. Throws UserError where it has more than 1 MiB, and is not `kind` then; and, naming
// `where` as what asked for it, where it cannot be read.
std::string small_file(const std::string& path, const std::string& where, std::string_view kind);

}  // namespace tpsim::rank
