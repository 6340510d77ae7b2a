#include "launch/deployment/acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "rank/catalogue/catalogue.h"
#include "scheduler/speculation.h"

namespace tpsim::launch {
namespace {

// The rate with which a chain of `steps` drafts keeps `length` tokens in the mean.
double rate_of(double length, std::uint32_t steps) {
  double low = 0, high = 1;
  for (int i = 0; i < 40; ++i) {
    const std::array<double, 1> middle = {(low + high) / 2};
    const auto lengths = scheduler::AcceptLengths::from_rates(middle, steps, 1, steps + 1);
    (lengths.mean() < length ? low : high) = middle[0];
  }
  constexpr double kDigits = 1000;
  return std::round(low * kDigits) / kDigits;
}

struct Row {
  std::string architecture, algorithm;
  PublishedAcceptance published;
};

const std::vector<Row>& published_rows() {
  static const std::vector<Row> kRows = [] {
    const auto json = nlohmann::json::parse(*rank::catalogue::find("acceptance", "published"));
    std::vector<Row> rows;
    for (const auto& row : json.at("rows"))
      rows.push_back({row.at("architecture"),
                      row.at("algorithm"),
                      {.rate = rate_of(row.at("length").get<double>(), row.at("steps").get<std::uint32_t>()),
                       .of = "as " + row.at("of").get<std::string>(),
                       .source = row.at("source")}});
    return rows;
  }();
  return kRows;
}

}  // namespace

std::optional<PublishedAcceptance> published_acceptance(const std::string& architecture,
                                                        rank::DraftKind kind) {
  const char* const algorithm = kind == rank::DraftKind::kNextN    ? "EAGLE"
                                : kind == rank::DraftKind::kEagle3 ? "EAGLE3"
                                                                   : "";
  std::vector<PublishedAcceptance> others;
  for (const Row& row : published_rows()) {
    if (row.algorithm != algorithm) continue;
    if (row.architecture == architecture) return row.published;
    others.push_back(row.published);
  }
  if (others.empty()) return std::nullopt;
  std::ranges::sort(others, {}, &PublishedAcceptance::rate);
  const std::size_t middle = (others.size() - 1) / 2;
  return PublishedAcceptance{.rate = others[middle].rate,
                             .of = fmt::format("between those of other models, {:g} to {:g}",
                                               others.front().rate, others.back().rate),
                             .source = "rank/catalogue/acceptance"};
}

}  // namespace tpsim::launch
