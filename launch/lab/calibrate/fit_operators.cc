#include "launch/lab/calibrate/fit_operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "launch/lab/calibrate/coordinate_search.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {
namespace {

using kernels::OperatorRow;
using Rows = std::vector<const OperatorRow*>;

// Rows that the search for coefficients looks at; all of them count for the corrections.
constexpr std::size_t kSearchedRows = 1500;
// So many rows that those of one fold say what the error is.
constexpr std::size_t kManyRows = 600;

bool is_hyper_connection(const std::string& name) { return name.starts_with("mhc."); }
bool is_delta(const std::string& name) { return std::ranges::count(rank::kDeltaClasses, name) > 0; }
bool is_collective(const std::string& name) { return kernels::matrix_rows_of(name) == nullptr; }

// Features in the order of feature_names(name).
std::vector<double> features_of(const std::string& name, const OperatorRow& row) {
  if (is_delta(name)) {
    const rank::DeltaFeatures features = rank::features_of(row.delta);
    return {features.begin(), features.end()};
  }
  if (is_collective(name)) return {row.bytes, static_cast<double>(row.gpus)};
  if (!name.starts_with("moe")) return {row.m, static_cast<double>(row.n), static_cast<double>(row.k)};
  const rank::RoutedExperts& e = row.experts;
  const rank::ExpertWork work = rank::work_of(e);
  return {e.tokens,
          static_cast<double>(e.hidden),
          static_cast<double>(e.width),
          static_cast<double>(e.experts),
          static_cast<double>(e.top_k),
          work.rows / work.hit};
}

// What a class is priced by, with `entry` in place of what the profile says of it.
class Candidate {
 public:
  Candidate(std::string name, const proto::HardwareProfile& profile)
      : name_(std::move(name)), profile_(profile) {
    // Only what this class's price reads: a profile is copied at every step of the search.
    profile_.clear_efficiencies();
    profile_.add_efficiencies()->set_operator_class(name_);
  }
  proto::OperatorEfficiency& entry() { return *profile_.mutable_efficiencies(0); }

  // Measured over priced, of each row.
  std::vector<double> ratios(const Rows& rows) const {
    const rank::OperatorCosts costs(profile_);
    std::vector<double> out;
    out.reserve(rows.size());
    for (const OperatorRow* row : rows) out.push_back(row->seconds / price(costs, name_, *row));
    return out;
  }

 private:
  std::string name_;
  proto::HardwareProfile profile_;
};

// The coefficients that rows of a class tell, and where they may lie.
class Search {
 public:
  Search(const std::string& name, const proto::HardwareProfile& profile) {
    search_.vary(c_.memory, 0.02, 1);
    search_.vary(c_.fixed_seconds, 2e-7, 5e-4);
    if (is_hyper_connection(name)) {
      search_.vary(c_.overlap, 1e-3, 1);
      return;
    }
    if (is_delta(name)) {
      search_.vary(c_.overlap, 1e-3, 1);
      search_.vary(c_.hot_memory, 1, 8);
      if (name == "kda.conv.decode") {
        c_.compute = 2e-3;
        search_.vary(c_.compute, 1e-4, 1);
      }
      if (name == "kda.verify") search_.vary(c_.k_seconds, 1e-9, 1e-4);
      if (name == "gdn.extend" || name == "kda.extend") {
        search_.vary(c_.k_seconds, 1e-8, 1e-4);
        search_.vary(c_.compute, 0.02, 1);
      }
      return;
    }
    if (is_collective(name)) {
      c_.per_gpu_seconds = 5e-7;
      search_.vary(c_.per_gpu_seconds, 1e-9, 1e-4);
      if (!profile.nvlink()) {
        c_.shared_link = 1;
        search_.vary(c_.shared_link, 1e-3, 10);
      }
      // Without NVLink only two GPUs use it, in one shot.
      if (name == "all_reduce.custom" && profile.nvlink()) {
        c_.two_shot_seconds = 3e-6;
        search_.vary(c_.two_shot_seconds, 1e-9, 1e-4);
      }
      return;
    }
    c_.k_seconds = 1e-10;
    search_.vary(c_.compute, 0.05, 1);
    search_.vary(c_.tile_seconds, 1e-9, 1e-4);
    search_.vary(c_.overlap, 1e-3, 1);
    search_.vary(c_.fill, 0.2, 64);
    search_.vary(c_.k_seconds, 1e-13, 1e-8);
    const rank::MatrixClassRow& row = rank::matrix_class(kernels::matrix_rows_of(name)->id);
    if (row.moe()) {
      c_.fixed_seconds = 1.5e-5;
      search_.vary(c_.rows, 0.01, 20);
      return;
    }
    c_.split_seconds = 3e-6;
    search_.vary(c_.split_seconds, 1e-7, 1e-4);
    search_.vary(c_.hot_memory, 1, 8);
    if (row.quantizes()) search_.vary(c_.quantize, 0.05, 4);
  }

  // Sets the candidate's coefficients to those that serve the rows best.
  void run(Candidate& candidate, const Rows& rows) {
    const auto loss = [&] {
      candidate.entry().clear_parameters();
      write_coefficients(c_, candidate.entry());
      double sum = 0;
      for (const double ratio : candidate.ratios(rows)) sum += std::min(1.0, std::abs(std::log(ratio)));
      return sum / static_cast<double>(rows.size());
    };
    search_.minimise(loss, 2);
    loss();
  }

 private:
  OperatorCoefficients c_;
  CoordinateSearch search_;
};

// Grids that corrections may lie over, one after the other. Points in pairs, such as 128 and 129: libraries
// change their kernel there.
struct Grid {
  std::vector<SurfaceAxis> axes;
  double smoothness = 0.1;  // prices follow the rows, and a point that lacks some takes after its neighbours
  double most = 5;          // of a factor
};

// Those of `points` among the values that rows have, and the least and the greatest of these.
SurfaceAxis within(const SurfaceAxis& ends, std::initializer_list<double> points) {
  SurfaceAxis out{ends.feature, {ends.points.front()}};
  for (const double point : points)
    if (point > ends.points.front() && point < ends.points.back()) out.points.push_back(point);
  if (ends.points.back() > ends.points.front()) out.points.push_back(ends.points.back());
  return out;
}

// Stages, each with grids of which one may be taken.
using Stages = std::vector<std::vector<Grid>>;
Stages stages_of(const std::string& name, const std::vector<SurfaceRow>& rows) {
  const std::span<const std::string_view> features = feature_names(name);
  const auto axis = [&](std::string_view feature, std::size_t most) {
    return axis_of(rows, features, feature, most);
  };
  if (is_hyper_connection(name)) return {};
  if (is_delta(name)) {
    // Over what no served layer finds in the L2, too.
    if (!name.ends_with("extend"))
      return {{{{axis("states", 14)}}, {{axis("states", 6)}}, {{axis("requests", 11), axis("channels", 4)}}}};
    const Grid lengths{{axis("requests", 7), axis("tokens", 16)}};
    if (rows.size() < kManyRows)
      return {{{{axis("requests", 7), axis("tokens", 16), axis("heads", 4)}}, lengths}};
    return {{{{axis("rows", 9), axis("heads", 10), axis("group", 4)}, 0.01}},
            {{{axis("requests", 7), axis("tokens", 16), axis("heads", 9)}}, lengths}};
  }
  // Between GPUs on PCIe a message takes many times as long as its bytes.
  if (is_collective(name)) return {{{{axis("bytes", 11), axis("gpus", 3)}, 0.1, 20}}};
  if (name.starts_with("moe")) {
    return {{{{axis("tokens", 9), axis("rows", 6)}}},
            {{{axis("hidden", 4), axis("width", 6)}}},
            {{{axis("experts", 5), axis("top_k", 4), axis("rows", 4)}}},
            {{{axis("tokens", 6), axis("width", 5), axis("hidden", 4)}}},
            {{{axis("tokens", 12)}}}};
  }
  const SurfaceAxis m = axis("m", 2), n = axis("n", 2), k = axis("k", 2);
  const SurfaceAxis coarse_n = within(n, {256, 1024, 4096, 8192, 16384});
  const SurfaceAxis coarse_k = within(k, {256, 1024, 4096, 16384});
  return {{{{within(m, {16, 64, 65, 128, 129, 256, 257, 1024, 1025, 4096}), coarse_n, coarse_k}},
           {{within(m, {16, 64, 128, 256, 512, 1024, 2048, 4096}), coarse_n, coarse_k}}},
          {{{within(n, {64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384}),
             within(k, {128, 512, 1024, 2048, 4096, 8192, 16384})}}}};
}

double cost_of(const std::vector<double>& ratios) {
  const RelativeErrors errors = relative_errors(ratios);
  return errors.median + 0.25 * errors.p90;
}

// Of each stage the grid that is taken, from 1; 0: none.
using Choice = std::vector<std::size_t>;

// Coefficients and corrections of `fitted`. Of each stage that grid, if any, which makes prices of `judged`
// better, or the one that `choice` has.
Candidate fit_rows(const std::string& name, const proto::HardwareProfile& profile, const Rows& fitted,
                   const Rows& judged, Choice& choice) {
  Candidate candidate(name, profile);
  Rows searched;
  // Every so many-th of them: the tables are sorted neither by shape nor by time.
  const std::size_t every = std::max<std::size_t>(1, fitted.size() / kSearchedRows);
  for (std::size_t i = 0; i < fitted.size(); i += every) searched.push_back(fitted[i]);
  Search(name, profile).run(candidate, searched);

  std::vector<SurfaceRow> rows;
  for (const OperatorRow* row : fitted) rows.push_back({features_of(name, *row), 1, 1});
  const Stages stages = stages_of(name, rows);
  const bool given = !choice.empty();
  choice.resize(stages.size());
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const std::vector<double> ratios = candidate.ratios(fitted);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].ratio = ratios[i];
    const auto surface = [&](const Grid& grid) {
      return fit_surface(rows, feature_names(name), grid.axes, {grid.smoothness, 1 / grid.most, grid.most});
    };
    auto& corrections = *candidate.entry().mutable_corrections();
    if (given) {
      if (choice[stage] > 0) *corrections.Add() = surface(stages[stage][choice[stage] - 1]);
      continue;
    }
    double best = 0.98 * cost_of(candidate.ratios(judged));
    proto::CorrectionSurface taken;
    for (std::size_t i = 0; i < stages[stage].size(); ++i) {
      *corrections.Add() = surface(stages[stage][i]);
      const double now = cost_of(candidate.ratios(judged));
      if (now < best) {
        best = now;
        choice[stage] = i + 1;
        taken = corrections.at(corrections.size() - 1);
      }
      corrections.RemoveLast();
    }
    if (choice[stage] > 0) *corrections.Add() = taken;
  }
  return candidate;
}

// The choice that most of `choices` made, stage by stage.
Choice common(const std::vector<Choice>& choices) {
  Choice out;
  for (std::size_t stage = 0; stage < choices.front().size(); ++stage) {
    std::map<std::size_t, std::size_t> votes;
    for (const Choice& choice : choices) ++votes[choice[stage]];
    out.push_back(std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
                    return a.second < b.second;
                  })->first);
  }
  return out;
}

constexpr std::uint64_t kFolds = 5;
std::uint64_t fold_of(const OperatorRow& row) {
  std::uint64_t hash = 0;
  for (const double part :
       {row.m, double(row.n), double(row.k), row.experts.tokens, double(row.experts.hidden),
        double(row.experts.width), double(row.experts.experts), double(row.experts.top_k),
        double(row.experts.ep_size), row.bytes, double(row.gpus), row.delta.requests, row.delta.tokens,
        row.delta.heads, row.delta.channels})
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x100000001b3U + (hash >> 31U);
  return (hash ^ (hash >> 32U)) % kFolds;
}

}  // namespace

ClassFit fit_operator(const std::string& operator_class, const std::vector<OperatorRow>& rows,
                      const proto::HardwareProfile& profile) {
  Rows all;
  for (const OperatorRow& row : rows)
    if (row.seconds > 0) all.push_back(&row);
  if (all.size() < kLeastRows) throw std::invalid_argument(operator_class + ": too few rows to fit");

  // Each fold's rows are judged by what was fitted to the others; of many rows one fold is enough.
  const std::uint64_t folds = all.size() < kManyRows ? kFolds : 1;
  std::vector<Choice> choices;
  std::vector<double> ratios, formula_ratios, ratios_before;
  const rank::OperatorCosts before(profile);
  for (const OperatorRow* row : all)
    if (fold_of(*row) == 0) ratios_before.push_back(row->seconds / price(before, operator_class, *row));
  ClassFit fit;
  for (std::uint64_t fold = 0; fold < folds; ++fold) {
    Rows fitted, judged;
    for (const OperatorRow* row : all) (fold_of(*row) == fold ? judged : fitted).push_back(row);
    if (judged.empty() || fitted.empty()) continue;
    Candidate candidate = fit_rows(operator_class, profile, fitted, judged, choices.emplace_back());
    for (const double ratio : candidate.ratios(judged)) ratios.push_back(ratio);
    fit.entry = candidate.entry();
    candidate.entry().clear_corrections();
    for (const double ratio : candidate.ratios(judged)) formula_ratios.push_back(ratio);
  }
  fit.left_out = relative_errors(ratios);
  fit.formula = relative_errors(formula_ratios);
  fit.before = relative_errors(ratios_before);
  fit.rows = all.size();
  if (folds > 1) {
    Choice choice = common(choices);
    fit.entry = fit_rows(operator_class, profile, all, {}, choice).entry();
  }
  fit.set_errors(fit.left_out);
  return fit;
}

}  // namespace tpsim::calibrate
