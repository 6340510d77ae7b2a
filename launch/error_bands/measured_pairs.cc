#include "launch/error_bands/measured_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "launch/error_bands/error_band.h"

namespace tpsim::launch {
namespace {

using Traits = proto::LoadTraits;

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
