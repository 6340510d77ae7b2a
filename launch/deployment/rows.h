// The rows of a report's server_args: every option and its value, under SGLang's field names. Each subject
// writes its own.
#pragma once

#include <google/protobuf/map.h>

#include <string>

namespace tpsim::launch {

using Rows = google::protobuf::Map<std::string, std::string>;

inline const char* on_off(bool on) { return on ? "true" : "false"; }

}  // namespace tpsim::launch
