#include "launch/error_bands/residuals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "rank/catalogue/catalogue.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kColumns[] = {"server",    "load",         "hardware",      "model",       "family",
                                    "weights",   "backend",      "gpus",          "speculation", "arrivals",
                                    "in_flight", "input_tokens", "output_tokens", "ttft",        "tpot",
                                    "latency",   "duration"};

// Five digits tell a ratio well enough, and the same on every machine.
Json rounded(double value) { return Json::parse(fmt::format("{:.5g}", value)); }

Json row_json(const Residual& row) {
  const proto::LoadTraits& traits = row.traits;
  Json json = {row.server,           row.load,         traits.hardware(), traits.model(),
               traits.family(),      traits.weights(), traits.backend(),  traits.gpus(),
               traits.speculation(), traits.arrivals()};
  for (const double value : {traits.in_flight(), traits.input_tokens(), traits.output_tokens()})
    json.push_back(rounded(value));
  for (const double ratio : row.ratio) json.push_back(ratio > 0 ? rounded(ratio) : Json());
  return json;
}

Residual parse_row(const Json& json) {
  if (json.size() != std::size(kColumns)) throw std::invalid_argument("a row has another number of columns");
  Residual row;
  std::size_t column = 0;
  const auto text = [&] { return json[column++].get<std::string>(); };
  const auto number = [&] { return json[column++].get<double>(); };
  row.server = text();
  row.load = text();
  row.traits.set_hardware(text());
  row.traits.set_model(text());
  row.traits.set_family(text());
  row.traits.set_weights(text());
  row.traits.set_backend(text());
  row.traits.set_gpus(json[column++].get<std::uint32_t>());
  row.traits.set_speculation(text());
  row.traits.set_arrivals(text());
  row.traits.set_in_flight(number());
  row.traits.set_input_tokens(number());
  row.traits.set_output_tokens(number());
  for (double& ratio : row.ratio) {
    const Json& cell = json[column++];
    if (cell.is_null()) continue;
    ratio = cell.get<double>();
    if (!(ratio > 0)) throw std::invalid_argument("a ratio is not above 0");
  }
  return row;
}

}  // namespace

std::string to_text(const ResidualTable& table) {
  std::string out = fmt::format("{{\n\"sources\": {},\n\"stretches\": [", Json(table.sources).dump());
  for (std::size_t i = 0; i < table.stretches.size(); ++i)
    out += fmt::format("{}[{:.5g}]", i == 0 ? "" : ", ", fmt::join(table.stretches[i], ", "));
  out += fmt::format("],\n\"columns\": {},\n\"rows\": [\n", Json(kColumns).dump());
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    out += fmt::format("{}{}\n", row_json(table.rows[i]).dump(), i + 1 == table.rows.size() ? "" : ",");
  return out + "]}\n";
}

ResidualTable parse_residuals(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    ResidualTable table;
    if (json.at("columns") != Json(kColumns)) throw std::invalid_argument("other columns");
    table.sources = json.at("sources").get<std::vector<std::string>>();
    table.stretches = json.at("stretches").get<std::vector<ByFigure>>();
    for (const Json& row : json.at("rows")) table.rows.push_back(parse_row(row));
    return table;
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(fmt::format("no table of residuals: {}", error.what()));
  }
}

Met met(const ResidualTable& table, std::string_view hardware, std::string_view family) {
  Met out;
  std::set<std::string_view> servers;
  for (const Residual& row : table.rows) {
    if (row.traits.hardware() != hardware || row.traits.family() != family) continue;
    ++out.loads;
    servers.insert(row.server);
  }
  out.servers = servers.size();
  return out;
}

namespace {

ResidualTable read_catalogue(std::string_view name) {
  const auto text = rank::catalogue::find("residuals", name);
  return text ? parse_residuals(*text) : ResidualTable{};
}

}  // namespace

const ResidualTable& catalogue_residuals() {
  static const ResidualTable table = read_catalogue("serving");
  return table;
}

const ResidualTable& generation_residuals() {
  static const ResidualTable table = read_catalogue("generation");
  return table;
}

}  // namespace tpsim::launch
