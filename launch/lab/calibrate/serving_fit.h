// A hardware profile fitted to measured loads, and what the fit came to. Each load is served again at other
// prices, and its steps, the rows of the fit, are held against those of the server's log.
//
// A row is the time of the steps of one load that are alike (decode: requests within a factor of the root
// of 2 and KV tokens within one of 2; prefill: tokens within the root of 2), so that a thousand equal steps
// do not outvote ten others. What a log does not tell comes from the requests: the mean time to the first
// token where fewer than three prefills are told, the mean time per token where no decode step is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/lab/calibrate/coefficient_fit.h"
#include "launch/lab/calibrate/coefficients_of_run.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/served/servable_load.h"
#include "proto/hardware.pb.h"
#include "proto/validation.pb.h"

namespace tpsim::calibrate {

struct ServingRow {
  enum class Kind : std::uint8_t { kDecode, kPrefill, kFirstToken, kPerToken };

  std::size_t load = 0;
  Kind kind = Kind::kDecode;
  std::vector<std::size_t> steps;  // of decode_steps() or prefill_steps(); empty for the others
  double weight = 1;
  bool held_out = false;
};
std::string to_string(ServingRow::Kind kind);

struct RefusedLoad {
  std::string name, reason;
};

class ServingRows {
 public:
  // Serves on `hardware` whatever GPU the loads name.
  ServingRows(std::vector<launch::MeasuredLoad> loads, const std::string& hardware);

  const std::vector<ServingRow>& rows() const { return rows_; }
  // ServingRow.load is the position among those that could be asked.
  std::size_t num_loads() const { return served_.size(); }
  const launch::MeasuredLoad& load(std::size_t index) const { return served_[index].measured; }
  const std::vector<RefusedLoad>& refused() const { return refused_; }
  // Steps that the rows are made of.
  std::uint64_t num_steps() const;
  // Of all loads, each once, that `profile` has a value for above 0.
  std::vector<Coefficient> coefficients(const proto::HardwareProfile& profile) const;

  // log(predicted / measured) of each row, NaN without a counterpart, at the prices of `profile` with
  // `coefficients` times e to the `logarithms`. A load that none of the changed ones touches is not served
  // again. `threads` at once; `on_served` is called on this thread now and then with the loads served so far
  // by this call, and what it throws is passed on when all threads have ended.
  std::vector<double> log_ratios(const proto::HardwareProfile& profile,
                                 const std::vector<Coefficient>& coefficients,
                                 const std::vector<double>& logarithms, std::uint32_t threads,
                                 const std::function<void()>& on_served);

  // What a load comes to at the prices of `profile`. May be called by several threads at once.
  launch::MeasuredFigures figures(std::size_t load, const proto::HardwareProfile& profile,
                                  const std::atomic<bool>& stop) const;

 private:
  struct Served {
    launch::MeasuredLoad measured;
    std::unique_ptr<launch::ServableLoad> servable;
    std::vector<Coefficient> coefficients;
    std::vector<std::size_t> rows;
    // Results by the logarithms of its own coefficients.
    std::map<std::vector<double>, std::vector<double>> known;
  };

  void add_rows(std::size_t load);
  void hold_out();
  launch::LoadRecords records_of(const Served& load, const proto::HardwareProfile& profile,
                                 const std::atomic<bool>& stop) const;
  std::vector<double> serve(const Served& load, const proto::HardwareProfile& profile,
                            const std::atomic<bool>& stop) const;

  std::vector<Served> served_;
  std::vector<ServingRow> rows_;
  std::vector<RefusedLoad> refused_;
};

struct CoefficientChange {
  Coefficient coefficient;
  double before = 0, after = 0;
  FittedUnknown fitted;
  std::size_t rows = 0;      // of the fit, that feel it
  proto::ErrorFigures left;  // of the rows held out that feel it, or of those of the fit where these are few
};

// Of the rows held out.
struct KindErrors {
  ServingRow::Kind kind = ServingRow::Kind::kDecode;
  proto::ErrorFigures before, after;
};

struct ServingFit {
  proto::HardwareProfile profile;  // with the source and error of each coefficient that was fitted
  std::vector<CoefficientChange> changes;
  std::vector<KindErrors> errors;
  std::size_t rows = 0, held_out = 0;
  bool worse = false;  // the rows held out came no closer: nothing was changed
};

// `source`: which measurements these are. `on_served` as ServingRows::log_ratios(). Throws UserError where
// there are fewer than kLeastFitRows rows.
ServingFit fit_serving(ServingRows& rows, const proto::HardwareProfile& profile, const std::string& source,
                       std::uint32_t threads, const std::function<void()>& on_served);

}  // namespace tpsim::calibrate
