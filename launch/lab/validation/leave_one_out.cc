#include "launch/lab/validation/leave_one_out.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "launch/lab/calibrate/coefficient_fit.h"
#include "launch/lab/calibrate/coefficients_of_run.h"
#include "launch/lab/calibrate/serving_fit.h"
#include "launch/lab/validation/validation_report.h"
#include "launch/simulation/parallel_loop.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

using calibrate::Coefficient;
using Row = proto::ValidatedRow;
using Values = std::vector<double>;

constexpr double kStep = 0.1;  // of a constant's logarithm, for slopes
// How a step's time answers bends: what a kernel hides at one value of a constant does not at another.
constexpr int kRounds = 3;
constexpr double kSettled = 0.03;  // of a logarithm

std::string group_of(const Row& row, const std::string& by) {
  if (by == "server") return server_of(row);
  const auto groupings = row_groupings();
  return std::find_if(groupings.begin(), groupings.end(),
                      [&by](const RowGrouping& of) { return of.by == by; })
      ->name_of(row);
}

using OnServed = std::function<void()>;

// The loads of one GPU.
class Gpu {
 public:
  Gpu(const std::string& hardware, std::vector<MeasuredLoad> loads)
      : hardware_(hardware), profile_(rank::load_hardware(hardware)), rows_(std::move(loads), hardware) {
    constants_ = rows_.coefficients(profile_);
    std::erase_if(constants_, [](const Coefficient& of) { return !calibrate::is_host_constant(of); });
  }

  const calibrate::ServingRows& rows() const { return rows_; }
  // Loads that a fit serves at most.
  std::size_t num_runs() const { return rows_.num_loads() * (1 + constants_.size()) * kRounds; }

  // Fits to the rows of all loads but those that `is_left_out` says, and writes what came of it to `out`.
  proto::HardwareProfile fit(const std::function<bool(std::size_t load)>& is_left_out, std::uint32_t threads,
                             const OnServed& on_served, proto::ConstantsFit& out);

 private:
  // How the rows answer near some logarithms of the constants' factors.
  struct Near {
    Values at;
    Values now;                  // log(predicted / measured) by row
    std::vector<Values> slopes;  // of these, by constant

    Values residuals(const Values& logarithms) const {
      Values there = now;
      for (std::size_t c = 0; c < at.size(); ++c)
        for (std::size_t i = 0; i < there.size(); ++i) there[i] += (logarithms[c] - at[c]) * slopes[c][i];
      return there;
    }
  };
  Near near(const Values& at, std::uint32_t threads, const OnServed& on_served);

  std::string hardware_;
  proto::HardwareProfile profile_;
  calibrate::ServingRows rows_;
  std::vector<Coefficient> constants_;
};

Gpu::Near Gpu::near(const Values& at, std::uint32_t threads, const OnServed& on_served) {
  Near out{at, rows_.log_ratios(profile_, constants_, at, threads, on_served), {}};
  for (std::size_t c = 0; c < at.size(); ++c) {
    Values raised = at;
    raised[c] += kStep;
    Values slope = rows_.log_ratios(profile_, constants_, raised, threads, on_served);
    for (std::size_t i = 0; i < slope.size(); ++i) slope[i] = (slope[i] - out.now[i]) / kStep;
    out.slopes.push_back(std::move(slope));
  }
  return out;
}

proto::HardwareProfile Gpu::fit(const std::function<bool(std::size_t load)>& is_left_out,
                                std::uint32_t threads, const OnServed& on_served, proto::ConstantsFit& out) {
  Values weights;
  std::size_t fitted_rows = 0;
  for (const calibrate::ServingRow& row : rows_.rows()) {
    weights.push_back(is_left_out(row.load) ? 0 : row.weight);
    fitted_rows += weights.back() > 0 ? 1 : 0;
  }
  const bool few = fitted_rows < calibrate::kLeastFitRows;
  const std::vector<calibrate::Unknown> unknowns = calibrate::unknowns_of(constants_, profile_);
  std::vector<calibrate::FittedUnknown> found(constants_.size());
  Values logarithms(constants_.size(), 0.0);
  for (int round = 0; round < kRounds && !few; ++round) {
    const Near here = near(logarithms, threads, on_served);
    found = calibrate::fit_coefficients(unknowns, weights, [&here](const Values& x) {
              return here.residuals(x);
            }).unknowns;
    double moved = 0;
    for (std::size_t c = 0; c < found.size(); ++c) {
      moved = std::max(moved, std::abs(found[c].logarithm - logarithms[c]));
      logarithms[c] = found[c].logarithm;
    }
    if (moved < kSettled) break;
  }
  proto::HardwareProfile fitted = calibrate::with_factors(profile_, constants_, logarithms);
  out.set_hardware(hardware_);
  out.set_rows(fitted_rows);
  for (std::size_t c = 0; c < constants_.size(); ++c) {
    proto::FittedConstant& constant = *out.add_constants();
    constant.set_name(constants_[c].name());
    constant.set_before(calibrate::value_of(profile_, constants_[c]).value());
    constant.set_fitted(calibrate::value_of(fitted, constants_[c]).value());
    if (few) {
      constant.set_kept("there are fewer rows than a fit needs");
    } else if (!found[c].told) {
      constant.set_kept(found[c].reason);
    }
  }
  return fitted;
}

std::string hardware_flag(const MeasuredLoad& load) {
  const auto flag = std::find(load.flags.begin(), load.flags.end(), "--hardware");
  return flag == load.flags.end() ? load.hardware : *std::next(flag);
}

// A load served by two profiles.
struct Again {
  const Gpu* gpu = nullptr;
  std::size_t load = 0, row = 0;
  std::shared_ptr<const proto::HardwareProfile> to_all, to_others;
  MeasuredFigures refitted, left_out;

  void write(Row& to) const {
    for (const RowFigure& figure : row_figures()) {
      if (!(to.*figure.has)()) continue;
      proto::MeasuredFigure& of = *(to.*figure.change)();
      if (const auto& value = refitted.*figure.of) of.set_refitted(*value);
      if (const auto& value = left_out.*figure.of) of.set_left_out(*value);
    }
  }
};

}  // namespace

std::vector<std::string_view> leave_one_out_groups() {
  std::vector<std::string_view> names = {"server"};
  for (const RowGrouping& grouping : row_groupings())
    if (grouping.by != "all" && grouping.by != "server") names.push_back(grouping.by);
  return names;
}

proto::LeaveOneOut leave_one_out(const std::vector<MeasuredLoad>& loads, const std::string& by,
                                 std::uint32_t threads,
                                 const std::function<void(std::size_t done, std::size_t most)>& on_tick,
                                 std::vector<Row>& rows) {
  struct Asked {
    std::vector<std::size_t> positions;
    std::vector<MeasuredLoad> loads;
    std::set<std::string> groups;
    std::unique_ptr<Gpu> gpu;
  };
  std::map<std::string, Asked> on_gpu;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (rows[i].has_refusal()) continue;
    Asked& asked = on_gpu[hardware_flag(loads[i])];
    asked.positions.push_back(i);
    asked.loads.push_back(loads[i]);
    asked.groups.insert(group_of(rows[i], by));
  }
  // Where there is but one group, nothing stays when it is left out.
  std::erase_if(on_gpu, [](const auto& of) { return of.second.groups.size() < 2; });
  std::size_t most = 0, done = 0;
  for (auto& [hardware, asked] : on_gpu) {
    asked.gpu = std::make_unique<Gpu>(hardware, std::move(asked.loads));
    if (asked.gpu->rows().num_loads() != asked.positions.size())
      throw std::logic_error("a load that was served cannot be served again");
    most += asked.gpu->num_runs() * (1 + asked.groups.size()) + 2 * asked.positions.size();
    on_tick(done, most);
  }
  proto::LeaveOneOut out;
  out.set_by(by);
  std::vector<Again> runs;
  for (auto& [hardware, asked] : on_gpu) {
    Gpu& gpu = *asked.gpu;
    const auto fitted = [&](const std::function<bool(std::size_t)>& is_left_out, const std::string& group) {
      proto::ConstantsFit& fit = *out.add_fits();
      fit.set_left_out(group);
      const auto profile = std::make_shared<const proto::HardwareProfile>(gpu.fit(
          is_left_out, threads, [&] { on_tick(done, most); }, fit));
      done += gpu.num_runs();
      return profile;
    };
    const auto to_all = fitted([](std::size_t) { return false; }, "");
    for (const std::string& group : asked.groups) {
      const auto is_left_out = [&](std::size_t load) {
        return group_of(rows[asked.positions[load]], by) == group;
      };
      const auto to_others = fitted(is_left_out, group);
      for (std::size_t load = 0; load < asked.positions.size(); ++load)
        if (is_left_out(load)) runs.push_back({&gpu, load, asked.positions[load], to_all, to_others, {}, {}});
    }
  }
  parallel_loop(
      runs.size(), threads,
      [&runs](std::size_t i, const std::atomic<bool>& stop) {
        Again& run = runs[i];
        run.refitted = run.gpu->rows().figures(run.load, *run.to_all, stop);
        run.left_out = run.gpu->rows().figures(run.load, *run.to_others, stop);
      },
      [&](std::size_t served) { on_tick(done + 2 * served, most); });
  for (const Again& run : runs) run.write(rows[run.row]);
  return out;
}

}  // namespace tpsim::launch
