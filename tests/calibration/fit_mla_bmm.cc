// Fits MLA's batched products (launch/lab/calibrate/mla_bmm_fit.h) to mla_bmm_perf.
//
//   fit_mla_bmm KERNELS_FOLDER HARDWARE_JSON
//
// prints the OperatorEfficiency of mla_bmm and mla_bmm_fp8 as JSON lines, and errors to stderr.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "launch/lab/calibrate/mla_bmm_fit.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::kernels {
namespace {

int run(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fit_mla_bmm KERNELS_FOLDER HARDWARE_JSON\n";
    return 2;
  }
  const auto read_in = read_profile(argv[2]);
  if (!read_in) return 2;
  const std::filesystem::path folder(argv[1]);
  for (const bool fp8 : {false, true}) {
    const std::vector<calibrate::BmmRow> rows = calibrate::bmm_rows(folder, fp8);
    if (rows.empty()) continue;
    calibrate::ClassFit fit = calibrate::fit_bmm(rows, fp8, *read_in);
    fit.entry.set_source("mla_bmm_perf of " + folder.filename().string() + ", " +
                         std::to_string(rows.size()) +
                         " rows (AIConfigurator, Apache-2.0); the errors are those of one row in five, left "
                         "out of the fit");
    print_entry(fit.entry);
    std::fprintf(
        stderr,
        "%s %s: %zu rows, left out: median %.1f %%, p90 %.1f %% (formula alone %.1f %%, %.1f %%); %d "
        "factors\n",
        read_in->name().c_str(), fit.entry.operator_class().c_str(), rows.size(), 100 * fit.left_out.median,
        100 * fit.left_out.p90, 100 * fit.formula.median, 100 * fit.formula.p90,
        fit.entry.corrections().empty() ? 0 : fit.entry.corrections(0).factors_size());
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::kernels

int main(int argc, char** argv) { return tpsim::kernels::run(argc, argv); }
