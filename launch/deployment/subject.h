// What the subjects of a deployment have in common: the rows that each writes, and the switches that several
// turn off.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/map.h>

#include <string>
#include <utility>
#include <vector>

#include "launch/flags/server_args.h"

namespace tpsim::launch {

// The rows of a report's server_args: every option and its value, under SGLang's field names.
using Rows = google::protobuf::Map<std::string, std::string>;

inline const char* on_off(bool on) { return on ? "true" : "false"; }

// The rows of the load, which no subject chooses, under the names of SGLang's serving benchmark.
void write_load(const ServerArgs& args, Rows& rows);

// Sentences for the user: what was chosen, or changed of what was said.
using Notes = std::vector<std::string>;

// Adds one, formatted.
template <typename... Args>
void say(Notes& notes, fmt::format_string<Args...> format, Args&&... args) {
  notes.push_back(fmt::format(format, std::forward<Args>(args)...));
}

// Each subject takes what is left on by those before it, and hands on what it leaves on.
struct Switches {
  bool mixed_chunk = false;
  bool overlap = true;
  bool radix_cache = true;
};

}  // namespace tpsim::launch
