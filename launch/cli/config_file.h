// The file of `--config`: a YAML mapping from flag names without their dashes to values, as SGLang's. A
// mapping within it is of the flags that begin with its name and a dot.
#pragma once

#include <string>
#include <vector>

namespace tpsim::launch {

struct ConfigEntry {
  std::string key;                  // "page-size"; underscores of the file are dashes here
  std::vector<std::string> values;  // one for a scalar, any number for a list
  int line = 0;                     // from 1
};

// Entries in the order of the file. Throws UserError with file and line for a file that cannot be read, is
// not a mapping, names a key twice, or holds a value that is neither a scalar, a list of scalars, nor a
// mapping.
std::vector<ConfigEntry> read_config_file(const std::string& path);

}  // namespace tpsim::launch
