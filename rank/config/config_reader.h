// Reads the keys of a config.json; every mistake is a UserError that names the file and the key.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::rank {

using Json = nlohmann::json;

class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  bool has(const char* key) const {
    asked_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null();
  }
  // Whether anybody wanted to know of the key.
  bool asked(std::string_view key) const { return asked_.contains(key); }
  std::uint32_t number(const char* key, std::uint32_t least = 1, std::uint32_t most = 1U << 28) const {
    if (!has(key)) throw_user_error("{}: key \"{}\" is missing; it must be a whole number", where_, key);
    return check(json_.at(key), key, least, most);
  }
  std::uint32_t number_or(const char* key, std::uint32_t otherwise, std::uint32_t least = 1) const {
    return has(key) ? number(key, least) : otherwise;
  }
  double real(const char* key, double otherwise, double least, double most) const {
    if (!has(key)) return otherwise;
    const Json& value = json_.at(key);
    if (!value.is_number() || !(value.get<double>() >= least) || value.get<double>() > most)
      throw_user_error("{}: key \"{}\" must be a number from {} to {}", where_, key, least, most);
    return value.get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) throw_user_error("{}: key \"{}\" must be true or false", where_, key);
    return json_.at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_string()) throw_user_error("{}: key \"{}\" must be a string", where_, key);
    return json_.at(key).get<std::string>();
  }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  std::uint32_t check(const Json& value, const char* key, std::uint32_t least, std::uint32_t most) const {
    if (!value.is_number_integer() || value.get<double>() < least || value.get<double>() > most) {
      std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
      if (shown.size() > 40) shown = shown.substr(0, 40) + "…";
      throw_user_error("{}: key \"{}\" is {}; it must be a whole number from {} to {}", where_, key, shown,
                       least, most);
    }
    return value.get<std::uint32_t>();
  }
  const Json& json_;
  std::string where_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace tpsim::rank
