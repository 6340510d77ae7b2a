#include "launch/error_bands/error_band.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tpsim::launch {
namespace {

using Traits = proto::LoadTraits;

// No server is as exact as itself: the same load, measured again, is off by about this.
constexpr double kNarrowest = 0.01;

bool near(double a, double b, double factor) { return a <= b * factor && b <= a * factor; }

bool same_load(const Traits& a, const Traits& b) {
  return a.arrivals() == b.arrivals() && near(a.in_flight(), b.in_flight(), 4) &&
         near(a.input_tokens(), b.input_tokens(), 4) && near(a.output_tokens(), b.output_tokens(), 4);
}
bool same_drafts(const Traits& a, const Traits& b) {
  return a.speculation().empty() == b.speculation().empty();
}
bool same_gpu(const Traits& a, const Traits& b) { return a.hardware() == b.hardware(); }
bool same_family(const Traits& a, const Traits& b) { return a.family() == b.family(); }
bool same_kernels(const Traits& a, const Traits& b) {
  return same_gpu(a, b) && same_family(a, b) && a.weights() == b.weights() && a.backend() == b.backend() &&
         same_drafts(a, b);
}

struct Level {
  std::string_view name;
  bool (*holds)(const Traits& asked, const Traits& row);
  std::size_t fewest_loads = kFewestLoads;
  bool of_pairs = false;  // each counts as one
};

constexpr std::array<Level, kNumLevels> kLevels = {{
    {"with the same GPU, model family, weights, attention backend and about the same load",
     [](const Traits& a, const Traits& b) { return same_kernels(a, b) && same_load(a, b); }},
    {"with the same GPU, model family, weights and attention backend", same_kernels},
    {"with the same GPU and model family",
     [](const Traits& a, const Traits& b) {
       return same_gpu(a, b) && same_family(a, b) && same_drafts(a, b);
     },
     kFewestLoadsOfPair},
    {"of any kind", [](const Traits&, const Traits&) { return true; }, kFewestLoads, /*of_pairs=*/true},
}};

// A value and how much of a pair's, or a load's, one it is.
using Weighted = std::pair<double, double>;

// The smallest of which `share` of `ones` is no larger, the largest where none is.
double weighted_quantile(std::vector<Weighted>& values, double ones, double share) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const auto& [value, weight] : values) {
    sum += weight;
    if (sum >= share * ones - 1e-9) return value;
  }
  return values.back().first;
}

// Of the rows that `counts`; not stretched.
template <typename Counts>
std::optional<Band> plain_band(const std::vector<Residual>& rows, Figure figure, const Level& level,
                               const Counts& counts) {
  std::vector<const Residual*> counted;
  std::set<std::string_view> servers;
  std::map<std::pair<std::string_view, std::string_view>, double> pairs;
  for (const Residual& row : rows) {
    if (row.of(figure) <= 0 || !counts(row)) continue;
    counted.push_back(&row);
    servers.insert(row.server);
    if (level.of_pairs) ++pairs[{row.traits.hardware(), row.traits.family()}];
  }
  if (counted.size() < level.fewest_loads || servers.size() < kFewestServers) return std::nullopt;
  if (level.of_pairs && pairs.size() < kFewestPairs) return std::nullopt;
  std::vector<Weighted> above, below;
  for (const Residual* const row : counted) {
    const double weight = level.of_pairs ? 1 / pairs.at({row->traits.hardware(), row->traits.family()}) : 1;
    above.emplace_back(row->of(figure), weight);
    below.emplace_back(1 / row->of(figure), weight);
  }
  constexpr double kEnd = (1 + kCoverage) / 2;
  const auto ones = static_cast<double>(level.of_pairs ? pairs.size() + kNewPairs : counted.size() + 1);
  Band band;
  band.high = std::max(weighted_quantile(above, ones, kEnd), 1 + kNarrowest);
  band.low = 1 / std::max(weighted_quantile(below, ones, kEnd), 1 + kNarrowest);
  band.loads = static_cast<std::uint32_t>(counted.size());
  band.servers = static_cast<std::uint32_t>(servers.size());
  return band;
}

// How far `ratio` lies from the prediction: 1 on the band's edge.
double score(double ratio, const Band& band) {
  return ratio >= 1 ? (ratio - 1) / (band.high - 1) : (1 / ratio - 1) / (1 / band.low - 1);
}

void stretch(double factor, Band& band) {
  band.high = 1 + std::max(factor * (band.high - 1), kNarrowest);
  band.low = 1 / (1 + std::max(factor * (1 / band.low - 1), kNarrowest));
}

void widen(const Band& other, Band& band) {
  band.low = std::min(band.low, other.low);
  band.high = std::max(band.high, other.high);
}

std::optional<Band> stretched_band(const ResidualTable& table, Figure figure, Likeness like,
                                   const Traits& asked, const LeftOut& left_out) {
  const auto level = static_cast<std::size_t>(like);
  const auto out = [](std::string_view left, std::string_view own) { return !left.empty() && left == own; };
  std::optional<Band> band = plain_band(table.rows, figure, kLevels[level], [&](const Residual& row) {
    return kLevels[level].holds(asked, row.traits) && !out(left_out.server, row.server) &&
           !out(left_out.family, row.traits.family()) && !out(left_out.hardware, row.traits.hardware());
  });
  if (!band) return band;
  band->like = like;
  stretch(table.stretches.at(level)[static_cast<std::size_t>(figure)], *band);
  return band;
}

// Where the rows that have a band of that level lie in it, made without their server: those that find no
// nearer one then, as a run does that ends at the level; all of them where these are few.
std::vector<double> scores_of(const std::vector<Residual>& rows, Figure figure, std::size_t level) {
  constexpr std::size_t kFew = 20;
  std::vector<double> all, ending_here;
  for (const Residual& asked : rows) {
    if (asked.of(figure) <= 0) continue;
    const auto band_at = [&](std::size_t other) {
      return plain_band(rows, figure, kLevels[other], [&](const Residual& row) {
        return row.server != asked.server && kLevels[other].holds(asked.traits, row.traits);
      });
    };
    const std::optional<Band> band = band_at(level);
    if (!band) continue;
    all.push_back(score(asked.of(figure), *band));
    bool nearer = false;
    for (std::size_t other = 0; other < level && !nearer; ++other) nearer = band_at(other).has_value();
    if (!nearer) ending_here.push_back(all.back());
  }
  return ending_here.size() >= kFew ? ending_here : all;
}

// In which respects two settings differ, in words: "attention backends and numbers of GPUs". Empty: in other
// flags only, or in none.
std::string differences(const Traits& a, const Traits& b) {
  std::string out;
  const auto add = [&out](bool differ, const char* name) {
    if (differ) out += out.empty() ? name : fmt::format(" and {}", name);
  };
  const auto kernels = [](const Traits& traits) {
    return traits.backend().substr(0, traits.backend().find(' '));
  };
  const auto flags = [&](const Traits& traits) { return traits.backend().substr(kernels(traits).size()); };
  add(kernels(a) != kernels(b), "attention backends");
  add(flags(a) != flags(b), "flags that pace steps");
  add(a.gpus() != b.gpus(), "numbers of GPUs");
  add(a.weights() != b.weights(), "weights");
  add(a.speculation() != b.speculation(), "speculation");
  return out;
}

// How many of two settings draft.
int drafting(const Traits& a, const Traits& b) {
  return (a.speculation().empty() ? 0 : 1) + (b.speculation().empty() ? 0 : 1);
}

struct Pair {
  const Traits* traits;  // of one of the two
  int drafting;
  std::string differences;
  double ratio;  // at least 1
};

std::vector<Pair> measured_pairs(const ResidualTable& table, Figure figure) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<const Residual*>> alike;
  for (const Residual& row : table.rows)
    if (row.of(figure) > 0) alike[{row.traits.model(), row.traits.hardware(), row.load}].push_back(&row);
  std::vector<Pair> pairs;
  for (const auto& [key, rows] : alike) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t k = i + 1; k < rows.size(); ++k) {
        const double ratio = rows[i]->of(figure) / rows[k]->of(figure);
        pairs.push_back({&rows[i]->traits, drafting(rows[i]->traits, rows[k]->traits),
                         differences(rows[i]->traits, rows[k]->traits), std::max(ratio, 1 / ratio)});
      }
    }
  }
  return pairs;
}

}  // namespace

std::string_view to_string(Likeness level) { return kLevels[static_cast<std::size_t>(level)].name; }

double upper_quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  const double place = std::ceil(share * static_cast<double>(values.size() + 1) - 1e-9);
  return values[std::min(values.size(), std::max<std::size_t>(1, static_cast<std::size_t>(place))) - 1];
}

std::vector<ByFigure> fit_stretches(const std::vector<Residual>& rows) {
  std::vector<ByFigure> stretches(kNumLevels);
  for (std::size_t f = 0; f < kNumFigures; ++f) {
    const auto figure = static_cast<Figure>(f);
    double most = 1;  // for levels that too few loads were tried on
    for (std::size_t l = 0; l < kNumLevels; ++l) stretches[l][f] = 1;
    std::array<bool, kNumLevels> known{};
    for (std::size_t l = 0; l < kNumLevels && !kLevels[l].of_pairs; ++l) {
      std::vector<double> scores = scores_of(rows, figure, l);
      known[l] = scores.size() >= kFewestLoads;
      if (!known[l]) continue;
      stretches[l][f] = upper_quantile(scores, kCoverage);
      most = std::max(most, stretches[l][f]);
    }
    for (std::size_t l = 0; l < kNumLevels && !kLevels[l].of_pairs; ++l)
      if (!known[l]) stretches[l][f] = most;
  }
  return stretches;
}

std::optional<Band> error_band(const ResidualTable& table, Figure figure, const Traits& asked,
                               bool carried_over, const LeftOut& left_out) {
  std::optional<Band> found;
  for (std::size_t l = 0; l < kNumLevels; ++l) {
    const auto like = static_cast<Likeness>(l);
    if (found && like != Likeness::kAnything) continue;
    std::optional<Band> band = stretched_band(table, figure, like, asked, left_out);
    if (!band) continue;
    if (found) {
      widen(*band, *found);
      found->widened = true;
    } else {
      found = band;
    }
    if (!carried_over || like == Likeness::kLoad) break;
  }
  return found;
}

std::optional<proto::ErrorBands> error_bands(const ResidualTable& table, const Traits& asked,
                                             const std::string& carried_over,
                                             const proto::RunReport& report) {
  const ByFigure predicted = {report.mean_ttft_ms(), report.mean_tpot_ms(), report.mean_e2e_latency_ms(),
                              report.duration()};
  proto::ErrorBands bands;
  for (std::size_t f = 0; f < kNumFigures; ++f) {
    const std::optional<Band> band = error_band(table, static_cast<Figure>(f), asked, !carried_over.empty());
    if (!band || !(predicted[f] > 0) || !std::isfinite(predicted[f])) continue;
    proto::ErrorBand& out = *bands.add_bands();
    out.set_figure(std::string(kFigureNames[f]));
    out.set_predicted(predicted[f]);
    out.set_low(predicted[f] * band->low);
    out.set_high(predicted[f] * band->high);
    out.set_like(std::string(to_string(band->like)));
    out.set_loads(band->loads);
    out.set_servers(band->servers);
    if (band->widened || band->like == Likeness::kAnything) out.set_widened(carried_over);
  }
  if (bands.bands().empty()) return std::nullopt;
  bands.set_coverage(kCoverage);
  *bands.mutable_traits() = asked;
  return bands;
}

std::optional<PairError> pair_error(const ResidualTable& table, Figure figure, const Traits& a,
                                    const Traits& b) {
  if (a.hardware() != b.hardware() || a.model() != b.model()) return std::nullopt;
  const std::vector<Pair> pairs = measured_pairs(table, figure);
  const std::string differ = differences(a, b);
  const std::string kind = differ.empty() ? "pairs of servers that differ in other flags or in none"
                                          : fmt::format("pairs of different {}", differ);
  const auto same_kind = [&](const Pair& pair) {
    return pair.differences == differ && pair.drafting == drafting(a, b);
  };
  const auto error_of = [&](const auto& counts, std::string like) -> std::optional<PairError> {
    std::vector<double> ratios;
    for (const Pair& pair : pairs)
      if (counts(pair)) ratios.push_back(pair.ratio);
    if (ratios.size() < kFewestLoads) return std::nullopt;
    return PairError{upper_quantile(ratios, kCoverage) - 1, static_cast<std::uint32_t>(ratios.size()),
                     std::move(like)};
  };
  const auto same_gpu = [&](const Pair& pair) {
    return same_kind(pair) && pair.traits->hardware() == a.hardware();
  };
  if (auto error =
          error_of([&](const Pair& pair) { return same_gpu(pair) && pair.traits->family() == a.family(); },
                   kind + " on this GPU with models of this family"))
    return error;
  if (auto error = error_of(same_gpu, kind + " on this GPU")) return error;
  if (auto error = error_of(same_kind, kind)) return error;
  return error_of([](const Pair&) { return true; }, "pairs of settings");
}

}  // namespace tpsim::launch
