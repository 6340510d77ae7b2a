// What a hardware profile must say before a price is made of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tpsim::rank {

// `json`: a HardwareProfile in JSON. Throws UserError that names `where` and the key for one that is unknown,
// missing, of the wrong type, or beyond what any GPU comes near; every other constant has the default that
// proto/hardware.proto states.
void check_hardware(const nlohmann::json& json, const std::string& where);

}  // namespace tpsim::rank
