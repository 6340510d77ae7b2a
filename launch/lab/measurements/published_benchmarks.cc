#include "launch/lab/measurements/published_benchmarks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launch/lab/measurements/server_account.h"

namespace tpsim::launch {

extern const std::string_view kPublishedBenchmarks;  // published_benchmarks.json, which the build embeds

namespace {

using Json = nlohmann::json;

// Whether a column is what a condition wants of it.
bool fits(const Json& column, const Json& wanted) {
  if (!wanted.is_object()) return column == wanted;
  for (const auto& [test, value] : wanted.items()) {
    if (test == "least" && column < value) return false;
    if (test == "contains" && column.get<std::string>().find(value.get<std::string>()) == std::string::npos)
      return false;
    if (test == "begins" && !column.get<std::string>().starts_with(value.get<std::string>())) return false;
    if ((test == "before" && !is_older(column, value)) || (test == "from" && is_older(column, value)))
      return false;
  }
  return true;
}

bool holds(const Json& condition, const Json& row) {
  for (const auto& [name, wanted] : condition.items()) {
    if (name == "not" ? holds(wanted, row)
        : name == "any"
            ? std::none_of(wanted.begin(), wanted.end(), [&row](const Json& of) { return holds(of, row); })
            : !fits(row.at(name), wanted))
      return false;
  }
  return true;
}

Json value_of(const Json& value, const Json& row) {
  if (!value.is_object()) return value;
  const std::uint64_t number =
      row.at(value.at("of").get<std::string>()).get<std::uint64_t>() + value.value("plus", 0U);
  return std::max(number, value.value("least", std::uint64_t{0}));
}

// Whether the rule applies; then `flags` and `settings` have what it says.
bool apply(const Json& rule, const Json& row, std::vector<std::string>& flags, Json& settings) {
  if (rule.contains("when") && !holds(rule["when"], row)) return false;
  for (const Json& word : rule.value("flags", Json::array())) {
    const Json value = value_of(word, row);
    flags.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  const Json set = rule.value("set", Json::object());
  for (const auto& [name, value] : set.items()) settings[name] = value_of(value, row);
  for (const Json& inner : rule.value("all", Json::array())) apply(inner, row, flags, settings);
  for (const Json& inner : rule.value("first", Json::array()))
    if (apply(inner, row, flags, settings)) break;
  return true;
}

}  // namespace

PublishedPattern published_pattern(const PublishedRow& row) {
  static const Json table = Json::parse(kPublishedBenchmarks);
  const Json columns = {{"model", row.model},
                        {"hardware", row.hardware},
                        {"precision", row.precision},
                        {"version", row.version},
                        {"isl", row.isl},
                        {"osl", row.osl},
                        {"concurrency", row.concurrency},
                        {"tp_size", row.tp_size},
                        {"ep_size", row.ep_size},
                        {"dp_size", row.dp_size},
                        {"faster_twin", row.faster_twin}};
  PublishedPattern out;
  Json settings = Json::object();
  for (const Json& rule : table.at("rules")) apply(rule, columns, out.server_flags, settings);
  out.range_ratio = settings.value("range_ratio", out.range_ratio);
  out.rounds = settings.value("rounds", out.rounds);
  out.ep_size = settings.value("ep_size", row.ep_size);
  out.server_tokens = settings.value("server_tokens", out.server_tokens);
  out.front_end = settings.at("front_end");
  out.speculates = settings.value("speculates", false);
  return out;
}

}  // namespace tpsim::launch
