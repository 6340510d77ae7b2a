// The numbers of a hardware profile that the times of a served load hang on.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/lab/calibrate/coefficient_fit.h"
#include "proto/hardware.pb.h"
#include "proto/report.pb.h"

namespace tpsim::calibrate {

struct Coefficient {
  std::string operator_class;  // empty: a constant of the profile itself
  std::string field;           // "memory", "graph_kernel_gap_seconds", or a parameter of the class
  // How far its logarithm may be from the profile's before anything is measured (Unknown::width): shares of a
  // datasheet's rates are known better than a host's times.
  double width = 0.3;

  // "gemm memory", "scheduler_step_seconds".
  std::string name() const { return operator_class.empty() ? field : operator_class + " " + field; }
  friend bool operator==(const Coefficient&, const Coefficient&) = default;
};

// What a run's prices are made of (proto::RunReport.calibration) and a server's times can tell: of decoding
// mostly rates of memory and gaps between kernels, of prefill rates of arithmetic, of both the host's times.
std::vector<Coefficient> coefficients_of_run(const proto::RunReport& header);

// What the profile says, or the formula's default; nothing where the formula takes it from other kernels.
std::optional<double> value_of(const proto::HardwareProfile& profile, const Coefficient& coefficient);
// REQUIRES: value_of() has one.
void set_value(const Coefficient& coefficient, double value, proto::HardwareProfile& profile);
// Whether it is a time of the host's, which the loads of a release share, and not a kernel's.
bool is_host_constant(const Coefficient& coefficient);

// As fit_coefficients() takes them. REQUIRES: each has a value above 0 in `profile`.
std::vector<Unknown> unknowns_of(const std::vector<Coefficient>& coefficients,
                                 const proto::HardwareProfile& profile);
// `profile` with each of `coefficients` times e to the power of its logarithm, within its range.
proto::HardwareProfile with_factors(const proto::HardwareProfile& profile,
                                    const std::vector<Coefficient>& coefficients,
                                    const std::vector<double>& logarithms);

}  // namespace tpsim::calibrate
