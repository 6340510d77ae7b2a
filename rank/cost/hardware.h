// Hardware profiles: from the catalogue, or from a file of the user's own in the same JSON form; and how JSON
// is read.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "proto/hardware.pb.h"
#include "proto/host.pb.h"

namespace tpsim::rank {

// `hardware`: a catalogue name ("h200-sxm"), the path of a .json file with a HardwareProfile, or a name that
// vendors give a GPU of the catalogue ("NVIDIA H200", "H200-SXM"). A file without attention classes takes
// those of the GPU of its name, where the catalogue has it. Throws UserError naming --hardware, or the file.
proto::HardwareProfile load_hardware(const std::string& hardware);
// A profile from JSON text; `where` names it in errors. Every constant of the result is finite and in a range
// in which prices are.
proto::HardwareProfile parse_hardware(const std::string& text, const std::string& where);
// What it must say before a price is made of it. `json`: a HardwareProfile in JSON. Throws UserError that
// names `where` and the key for one that is unknown, missing, of the wrong type, or beyond what any GPU comes
// near; every other constant has the default that proto/hardware.proto states.
void check_hardware(const nlohmann::json& json, const std::string& where);
std::vector<std::string> hardware_catalogue();
// The host that such a `hardware` stands in: its file may name one in a key "host", which is a name of
// rank/catalogue/hosts, or a .json file of the same form beside it; else the machine of H200s that was
// measured. Throws UserError, as load_hardware() does.
proto::HostProfile load_host(const std::string& hardware);
// GPUs that one node has: what its file says, else the 8 of an HGX board, an MI300X platform, a PCIe server.
std::uint32_t gpus_of_node(const proto::HardwareProfile& profile);
// How a constant of `profile` was measured; null: it was not measured.
const proto::ConstantFit* find_constant_fit(const proto::HardwareProfile& profile, std::string_view constant);

inline constexpr std::uint32_t kHostProfileVersion = 1;

// `where` names the text in errors. Every constant of the result is given, finite and not negative. Throws
// UserError.
proto::HostProfile parse_host(std::string_view text, const std::string& where);

// Reads JSON into a Protobuf message by reflection, several times as fast as Protobuf's own reader: hardware
// profiles are read by every command. And what stands around that: files, and sentences for what is wrong.
//
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
