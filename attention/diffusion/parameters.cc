#include "attention/diffusion/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

constexpr std::string_view kFlag = kDiffusionConfigFlag;
constexpr std::string_view kForms = "a path to a .json or .yaml file, a JSON object, or key=value,key=value";
constexpr std::size_t kMostBytes = 1 << 20;  // of a file; one holds a few keys

// A value as it was written: numbers and flags as text, lists as their elements.
using Given = std::map<std::string, std::vector<std::string>, std::less<>>;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string scalar(const nlohmann::json& value, std::string_view key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  throw_user_error("{}: {} is {}; give a number, a text, true or false", kFlag, in_quotes(key),
                   value.is_null() ? "null" : "an object or a list in a list");
}

void take(const nlohmann::json& object, Given& given) {
  for (const auto& [key, value] : object.items()) {
    // vmoba_attn reads its keys from an object of this name.
    if (key == "moba_config" && value.is_object()) {
      take(value, given);
      continue;
    }
    std::vector<std::string>& parts = given[key];
    parts.clear();
    if (!value.is_array()) {
      parts.push_back(scalar(value, key));
    } else {
      for (const nlohmann::json& part : value) parts.push_back(scalar(part, key));
    }
  }
}

std::optional<Given> from_json(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (object.is_discarded()) return std::nullopt;
  if (!object.is_object()) throw_user_error("{}: the JSON is no object; give {}", kFlag, kForms);
  Given given;
  take(object, given);
  return given;
}

void take(const YAML::Node& object, Given& given) {
  for (const auto& entry : object) {
    if (!entry.first.IsScalar()) throw_user_error("{}: a key of the YAML is no text", kFlag);
    const auto key = entry.first.as<std::string>();
    const YAML::Node& value = entry.second;
    if (key == "moba_config" && value.IsMap()) {
      take(value, given);
      continue;
    }
    std::vector<std::string>& parts = given[key];
    parts.clear();
    const auto add = [&](const YAML::Node& part) {
      if (!part.IsScalar())
        throw_user_error("{}: {} is no number, text, true or false", kFlag, in_quotes(key));
      parts.push_back(part.as<std::string>());
    };
    if (!value.IsSequence()) {
      add(value);
    } else {
      for (const YAML::Node& part : value) add(part);
    }
  }
}

Given from_document(const std::string& text, const std::string& path) {
  if (ends_with(path, ".json")) {
    if (std::optional<Given> given = from_json(text)) return *std::move(given);
    throw_user_error("{} {}: is no valid JSON", kFlag, path);
  }
  try {
    const YAML::Node node = YAML::Load(text);
    if (!node.IsMap()) throw_user_error("{} {}: holds no keys; give {}", kFlag, path, kForms);
    Given given;
    take(node, given);
    return given;
  } catch (const YAML::Exception& error) {
    throw_user_error("{} {}:{}: not valid YAML: {}", kFlag, path, std::max(0, error.mark.line) + 1,
                     error.msg);
  }
}

Given from_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  if (text.size() > kMostBytes)
    throw_user_error("{} {}: is over 1 MiB; a config holds a few keys", kFlag, path);
  return from_document(text, path);
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

Given from_pairs(const std::string& text) {
  Given given;
  for (const std::string& pair : split_list(text)) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos)
      throw_user_error("{}: {} is neither key=value nor an existing file; give {}", kFlag, in_quotes(pair),
                       kForms);
    given[trimmed(std::string_view(pair).substr(0, equals))] = {
        trimmed(std::string_view(pair).substr(equals + 1))};
  }
  return given;
}

Given read_given(const std::string& text) {
  if (text.empty()) return {};
  std::error_code error;
  const bool document = ends_with(text, ".json") || ends_with(text, ".yaml") || ends_with(text, ".yml");
  if (document && std::filesystem::is_regular_file(text, error)) return from_file(text);
  if (std::optional<Given> given = from_json(text)) return *std::move(given);
  if (document && text.find('=') == std::string::npos)
    throw_user_error("{} {}: there is no such file", kFlag, text);
  return from_pairs(text);
}

std::string checked(const DiffusionBackend& backend, const DiffusionParameter& parameter,
                    const std::vector<std::string>& parts) {
  const std::string flag = fmt::format("{} of {}: {}", kFlag, backend.name, parameter.name);
  if (parameter.type == ParameterType::kSizes) {
    if (parts.size() != parameter.sizes)
      throw_user_error("{}: has {} numbers, it needs a list of {} (as JSON: \"{}\": [4, 6])", flag,
                       parts.size(), parameter.sizes, parameter.name);
    std::vector<std::uint64_t> sizes;
    sizes.reserve(parts.size());
    for (const std::string& part : parts) {
      sizes.push_back(parse_count(flag, part, static_cast<std::uint64_t>(parameter.min),
                                  static_cast<std::uint64_t>(parameter.max)));
    }
    return fmt::format("{}", fmt::join(sizes, ","));
  }
  if (parts.size() != 1) throw_user_error("{}: is a list; it is one value", flag);
  const std::string& text = parts.front();
  switch (parameter.type) {
    case ParameterType::kInteger:
      return std::to_string(parse_count(flag, text, static_cast<std::uint64_t>(parameter.min),
                                        static_cast<std::uint64_t>(parameter.max)));
    case ParameterType::kReal:
      return format_real(parse_real(flag, text, parameter.min, true, parameter.max, true));
    case ParameterType::kFlag:
      if (text != "true" && text != "false")
        throw_user_error("{}: {} is neither true nor false", flag, in_quotes(text));
      return text;
    default:
      break;
  }
  if (text.empty()) throw_user_error("{}: is empty", flag);
  if (!parameter.choices.empty() &&
      std::find(parameter.choices.begin(), parameter.choices.end(), text) == parameter.choices.end())
    throw_user_error("{}: {} is not one of {}", flag, in_quotes(text), join_or(parameter.choices));
  return text;
}

const DiffusionParameter* find_parameter(const DiffusionBackend& backend, std::string_view key) {
  for (const DiffusionParameter& parameter : backend.parameters) {
    if (key == parameter.name || (!parameter.alias.empty() && key == parameter.alias)) return &parameter;
  }
  return nullptr;
}

DiffusionParameters filled(const DiffusionBackend& backend, const Given& given,
                           std::span<const DiffusionBackend* const> sharing = {}) {
  DiffusionParameters parameters;
  for (const auto& [key, parts] : given) {
    const DiffusionParameter* const parameter = find_parameter(backend, key);
    if (parameter == nullptr) {
      if (std::ranges::any_of(sharing, [&key](const DiffusionBackend* other) {
            return find_parameter(*other, key) != nullptr;
          }))
        continue;
      if (sharing.size() > 1)
        throw_user_error("{}: none of the compared backends reads {}", kFlag, in_quotes(key));
      std::vector<std::string_view> names;
      for (const DiffusionParameter& known : backend.parameters) names.push_back(known.name);
      if (names.empty())
        throw_user_error("{}: {} is given, and {} reads no parameters", kFlag, in_quotes(key), backend.name);
      throw_user_error("{}: {} reads no {}{}; it reads {}", kFlag, backend.name, in_quotes(key),
                       did_you_mean(key, names), fmt::join(names, ", "));
    }
    parameters[std::string(parameter->name)] = checked(backend, *parameter, parts);
  }
  for (const DiffusionParameter& parameter : backend.parameters) {
    if (parameters.contains(parameter.name)) continue;
    if (parameter.required)
      throw_user_error("{}: {} needs {} ({})", kFlag, backend.name, parameter.name, parameter.meaning);
    if (!parameter.default_value.empty()) parameters.emplace(parameter.name, parameter.default_value);
  }
  if (backend.check != nullptr) backend.check(parameters);
  return parameters;
}

}  // namespace

DiffusionParameters read_diffusion_parameters(const DiffusionBackend& backend, const std::string& text,
                                              std::span<const DiffusionBackend* const> sharing) {
  return filled(backend, read_given(text), sharing);
}

DiffusionParameters parse_diffusion_parameters(const DiffusionBackend& backend, const std::string& text,
                                               const std::string& path) {
  return filled(backend, from_document(text, path));
}

}  // namespace tpsim::attention
