#include "launch/calibrate/fit_operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "launch/calibrate/coordinate_search.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {
namespace {

using calibration::OperatorRow;
using Rows = std::vector<const OperatorRow*>;

// Rows that the search for coefficients looks at; all of them count for the corrections.
constexpr std::size_t kSearchedRows = 1500;

bool is_collective(const std::string& name) { return calibration::matrix_rows_of(name) == nullptr; }

// Features in the order of feature_names(name).
std::vector<double> features_of(const std::string& name, const OperatorRow& row) {
  if (is_collective(name)) return {row.bytes, static_cast<double>(row.gpus)};
  if (!name.starts_with("moe")) return {row.m, static_cast<double>(row.n), static_cast<double>(row.k)};
  const rank::RoutedExperts& e = row.experts;
  const rank::ExpertWork work = rank::OperatorCosts::work_of(e);
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
    entry_ = profile_.add_efficiencies();
    entry_->set_operator_class(name_);
  }
  proto::OperatorEfficiency& entry() { return *entry_; }

  // Measured over priced, of each row.
  std::vector<double> ratios(const Rows& rows) const {
    const rank::OperatorCosts costs(profile_);
    std::vector<double> out;
    out.reserve(rows.size());
    for (const OperatorRow* row : rows) out.push_back(row->seconds / price(costs, name_, *row));
    return out;
  }
  RelativeErrors errors(const Rows& rows) const { return relative_errors(ratios(rows)); }

 private:
  std::string name_;
  proto::HardwareProfile profile_;
  proto::OperatorEfficiency* entry_;
};

// The coefficients that rows of a class tell, and where they may lie.
class Search {
 public:
  Search(const std::string& name, const proto::HardwareProfile& profile) {
    add(c_.memory, 0.02, 1);
    add(c_.fixed_seconds, 2e-7, 5e-4);
    if (is_collective(name)) {
      c_.per_gpu_seconds = 5e-7;
      add(c_.per_gpu_seconds, 1e-9, 1e-4);
      // Without NVLink only two GPUs use it, in one shot.
      if (name == "all_reduce.custom" && profile.nvlink()) {
        c_.two_shot_seconds = 3e-6;
        add(c_.two_shot_seconds, 1e-9, 1e-4);
      }
      return;
    }
    c_.k_seconds = 1e-10;
    add(c_.compute, 0.05, 1);
    add(c_.tile_seconds, 1e-9, 1e-4);
    add(c_.overlap, 1e-3, 1);
    add(c_.fill, 0.2, 64);
    add(c_.k_seconds, 1e-13, 1e-8);
    const rank::MatrixClassRow& row = rank::matrix_class(calibration::matrix_rows_of(name)->id);
    if (row.moe()) {
      c_.fixed_seconds = 1.5e-5;
      add(c_.rows, 0.01, 20);
      return;
    }
    c_.split_seconds = 3e-6;
    add(c_.split_seconds, 1e-7, 1e-4);
    add(c_.hot_memory, 1, 8);
    if (row.quantizes()) add(c_.quantize, 0.05, 4);
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
    for (int round = 0; round < 2; ++round) minimise(values_, low_, high_, loss);
    loss();
  }

 private:
  void add(double& value, double low, double high) {
    values_.push_back(&value);
    low_.push_back(low);
    high_.push_back(high);
  }

  OperatorCoefficients c_;
  std::vector<double*> values_;
  std::vector<double> low_, high_;
};

// Grids that corrections may lie over. Points in pairs, such as 128 and 129: libraries change their kernel
// there.
using Grid = std::vector<SurfaceAxis>;
std::vector<Grid> grids_of(const std::string& name, const std::vector<SurfaceRow>& rows) {
  const std::span<const std::string_view> features = feature_names(name);
  const auto axis = [&](std::string_view feature, std::size_t most) {
    return axis_of(rows, features, feature, most);
  };
  if (is_collective(name)) return {{axis("bytes", 8), axis("gpus", 3)}};
  if (name.starts_with("moe")) {
    return {{axis("tokens", 9), axis("rows", 6)},
            {axis("hidden", 4), axis("width", 6)},
            {axis("experts", 5), axis("top_k", 4), axis("rows", 4)}};
  }
  const auto within = [&](const SurfaceAxis& all, std::initializer_list<double> points) {
    SurfaceAxis out{all.feature, {}};
    for (const double point : points)
      if (point >= all.points.front() && point <= all.points.back()) out.points.push_back(point);
    return out.points.empty() ? SurfaceAxis{all.feature, {all.points.front()}} : out;
  };
  return {{within(axis("m", 2), {1, 16, 64, 65, 128, 129, 256, 257, 1024, 1025, 4096, 32768}),
           within(axis("n", 2), {32, 256, 1024, 4096, 8192, 16384, 65536}),
           within(axis("k", 2), {32, 256, 1024, 4096, 16384, 65536})}};
}

double cost_of(const RelativeErrors& errors) { return errors.median + 0.25 * errors.p90; }

// Adds the surfaces, one after the other, that make prices of rows that they were not fitted to better.
void add_corrections(const std::string& name, Candidate& candidate, const Rows& fitted,
                     const Rows& left_out) {
  // A tenth of the grid's weight in smoothness: prices follow the rows, and a point that lacks some takes
  // after its neighbours.
  constexpr double kSmoothness = 0.1;
  std::vector<SurfaceRow> rows;
  for (const OperatorRow* row : fitted) rows.push_back({features_of(name, *row), 1, 1});
  double best = cost_of(candidate.errors(left_out));
  for (const Grid& grid : grids_of(name, rows)) {
    const std::vector<double> ratios = candidate.ratios(fitted);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].ratio = ratios[i];
    *candidate.entry().add_corrections() =
        fit_surface(rows, feature_names(name), grid, {.smoothness = kSmoothness});
    const double now = cost_of(candidate.errors(left_out));
    if (now < 0.98 * best) {
      best = now;
    } else {
      candidate.entry().mutable_corrections()->RemoveLast();
    }
  }
}

}  // namespace

bool is_left_out(const OperatorRow& row) {
  std::uint64_t hash = 0;
  for (const double part :
       {row.m, double(row.n), double(row.k), row.experts.tokens, double(row.experts.hidden),
        double(row.experts.width), double(row.experts.experts), double(row.experts.top_k),
        double(row.experts.ep_size), row.bytes, double(row.gpus)})
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x100000001b3U + (hash >> 31U);
  return (hash ^ (hash >> 32U)) % 5 == 0;
}

OperatorFit fit_operator(const std::string& operator_class, const std::vector<OperatorRow>& rows,
                         const proto::HardwareProfile& profile) {
  Rows fitted, left_out;
  for (const OperatorRow& row : rows)
    if (row.seconds > 0) (is_left_out(row) ? left_out : fitted).push_back(&row);
  if (fitted.size() + left_out.size() < kLeastRows)
    throw std::invalid_argument(operator_class + ": too few rows to fit");
  if (left_out.empty()) left_out = fitted;
  Rows searched;
  // Every so many-th of them: the tables are sorted neither by shape nor by time.
  const std::size_t every = std::max<std::size_t>(1, fitted.size() / kSearchedRows);
  for (std::size_t i = 0; i < fitted.size(); i += every) searched.push_back(fitted[i]);

  Candidate candidate(operator_class, profile);
  Search(operator_class, profile).run(candidate, searched);
  OperatorFit fit;
  fit.formula = candidate.errors(left_out);
  add_corrections(operator_class, candidate, fitted, left_out);
  fit.left_out = candidate.errors(left_out);
  fit.rows = fitted.size() + left_out.size();
  fit.entry = candidate.entry();
  fit.entry.set_median_error(fit.left_out.median);
  fit.entry.set_p90_error(fit.left_out.p90);
  return fit;
}

}  // namespace tpsim::calibrate
