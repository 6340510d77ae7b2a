// A file of one YAML document, as a config file or a fleet is.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

namespace tpsim::launch {

// The bytes of the file at `path`, which `flag` names. Throws UserError for one that cannot be read.
std::string read_text(std::string_view flag, const std::string& path);

// The only document of `text`; null of none. Throws UserError "PATH:LINE: …" for what is no YAML, and for a
// second document; `expected` says what one holds. (YAML::LoadAll never ends where a document consumes
// nothing, as ",: a" does.)
YAML::Node load_yaml(const std::string& text, const std::string& path, std::string_view expected);

}  // namespace tpsim::launch
