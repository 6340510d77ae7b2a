#include "launch/cli/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string>

#include "launch/cli/yaml_file.h"
#include "proto/base/error.h"

namespace tpsim::launch {

namespace {

YAML::Node load(const std::string& path) {
  const std::string text = read_text("--config", path);
  if (text.empty())
    throw_user_error("--config {}: the file is empty, a YAML mapping of flags to values is expected", path);
  return load_yaml(text, path, "one mapping of flags to values");
}

// `prefix`: of the flags of a mapping within the file, "vae-config.".
void read_mapping(const YAML::Node& mapping, const std::string& prefix, const std::string& path,
                  std::vector<ConfigEntry>& entries) {
  for (const auto& pair : mapping) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) throw_user_error("{}:{}: a key must be the name of a flag", path, line);
    ConfigEntry entry{prefix + pair.first.Scalar(), {}, line};
    std::replace(entry.key.begin(), entry.key.end(), '_', '-');
    const auto same_key = [&entry](const ConfigEntry& other) { return other.key == entry.key; };
    if (std::any_of(entries.begin(), entries.end(), same_key))
      throw_user_error("{}:{}: {} is given twice", path, line, entry.key);
    if (pair.second.IsMap() && pair.second.size() > 0) {
      read_mapping(pair.second, entry.key + ".", path, entries);
      continue;
    }
    if (pair.second.IsScalar()) {
      entry.values.push_back(pair.second.Scalar());
    } else if (pair.second.IsSequence() && pair.second.size() > 0) {
      for (const YAML::Node& item : pair.second) {
        if (!item.IsScalar())
          throw_user_error("{}:{}: {}: a list may hold plain values only", path, line, entry.key);
        entry.values.push_back(item.Scalar());
      }
    } else {
      throw_user_error("{}:{}: {}: a value, or a list of values, is expected", path, line, entry.key);
    }
    entries.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::string& path) {
  const YAML::Node root = load(path);
  if (root.IsNull()) throw_user_error("{}: names no flag; one `flag: value` a line is expected", path);
  if (!root.IsMap()) throw_user_error("{}:1: a mapping is expected, one `flag: value` a line", path);
  std::vector<ConfigEntry> entries;
  read_mapping(root, "", path, entries);
  return entries;
}

}  // namespace tpsim::launch
