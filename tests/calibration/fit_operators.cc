// Fits the operator classes of one GPU (launch/lab/calibrate/fit_operators.h) to measured kernels.
//
//   fit_operators KERNELS_FOLDER GPU HARDWARE_JSON [PREFIX]
//
// Prints one OperatorEfficiency object a class, as JSON; only of classes whose name begins with PREFIX.
#include "launch/lab/calibrate/fit_operators.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>

#include "launch/lab/kernels/operator_rows.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::kernels {
namespace {

int run(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::cerr << "usage: fit_operators KERNELS_FOLDER GPU HARDWARE_JSON [PREFIX]\n";
    return 2;
  }
  const auto profile = read_profile(argv[3]);
  if (!profile) return 2;
  const std::filesystem::path folder = std::filesystem::path(argv[1]) / argv[2];
  for (const std::string& name : operator_classes()) {
    if (argc == 5 && !name.starts_with(argv[4])) continue;
    const std::vector<OperatorRow> rows = operator_rows(folder, name, *profile);
    if (rows.size() < calibrate::kLeastRows) continue;
    calibrate::ClassFit fit = calibrate::fit_operator(name, rows, *profile);
    const MatrixRows* matrix = matrix_rows_of(name);
    fit.entry.set_source(fmt::format(
        "{} rows of {}, {} of them (AIConfigurator, Apache-2.0); the errors are those of one row in "
        "five, left out of the fit",
        matrix != nullptr         ? matrix->dtype
        : name.starts_with("gdn") ? "gdn_perf"
        : name.starts_with("kda") ? "kda_perf"
                                  : "half",
        argv[2], fit.rows));
    print_entry(fit.entry);
    std::size_t factors = 0;
    for (const auto& surface : fit.entry.corrections())
      factors += static_cast<std::size_t>(surface.factors_size());
    std::cerr << fmt::format(
        "{} {}: {} rows, left out median {:.1f} % p90 {:.1f} % (formula {:.1f} % {:.1f} %), "
        "{} factors\n",
        argv[2], name, fit.rows, 100 * fit.left_out.median, 100 * fit.left_out.p90, 100 * fit.formula.median,
        100 * fit.formula.p90, factors);
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::kernels

int main(int argc, char** argv) { return tpsim::kernels::run(argc, argv); }
