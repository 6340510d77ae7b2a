// Fits MLA's batched products (rank/model/mla_cost.h) to mla_bmm_perf.
//
//   fit_mla_bmm KERNELS_FOLDER HARDWARE_JSON     prints the OperatorEfficiency of mla_bmm and mla_bmm_fp8, as
//   JSON
//
// One row in five, by a hash of its shape, is left out of the fit; median_error is theirs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "launch/calibrate/coordinate_search.h"
#include "launch/calibrate/corrections.h"
#include "launch/kernels/kernel_table.h"
#include "rank/model/mla_cost.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::calibration {
namespace {

struct Row {
  double heads, tokens, seconds;
  bool pre;  // into the latent's space
  bool held_out;
  double n() const { return pre ? 512 : 128; }
};

// `l2`: bandwidth of the L2 cache over that of memory; what fits it is there already (as in
// attention/plan_cost.h).
double price(const OperatorCoefficients& c, const Corrections& corrections,
             const proto::HardwareProfile& profile, const Row& row, double bytes, double l2) {
  const double n = row.n();
  const double k = row.pre ? 128 : 512;
  const double all = rank::batched_gemm(c, {}, profile, row.heads, row.tokens, n, k, bytes).bytes;
  const double missed = std::clamp((all / profile.l2_bytes() - 0.7) / 0.8, 0.0, 1.0);
  return rank::batched_gemm(c, corrections, profile, row.heads, row.tokens, n, k, bytes,
                            missed + (1 - missed) / l2)
      .seconds;
}

// What the rows of the fit say beyond the formula.
std::vector<proto::CorrectionSurface> correction(const OperatorCoefficients& c,
                                                 const proto::HardwareProfile& profile,
                                                 const std::vector<Row>& rows, double bytes, double l2) {
  std::vector<calibrate::SurfaceRow> known;
  for (const Row& row : rows) {
    if (row.held_out) continue;
    known.push_back({{row.heads, row.tokens, row.n()}, row.seconds / price(c, {}, profile, row, bytes, l2)});
  }
  std::vector<calibrate::GridWish> grids;
  for (const std::size_t points : {3, 5, 7, 10, 14})
    grids.push_back({{"heads", std::min<std::size_t>(points, 8)}, {"m", points}, {"n", 2}});
  const std::vector<std::vector<calibrate::GridWish>> stages = {grids};
  return calibrate::choose_corrections(known, kBatchedGemmFeatures, stages);
}

int run(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fit_mla_bmm KERNELS_FOLDER HARDWARE_JSON\n";
    return 2;
  }
  const auto read_in = read_profile(argv[2]);
  if (!read_in) return 2;
  const proto::HardwareProfile& profile = *read_in;
  const std::filesystem::path folder(argv[1]);
  const KernelTable table(folder / "mla_bmm_perf.csv.gz");
  for (const bool fp8 : {false, true}) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if ((table.text(i, "bmm_dtype") == "fp8") != fp8) continue;
      Row row{table.number(i, "num_heads"), table.number(i, "num_tokens"),
              table.number(i, "latency_ms") / 1e3, table.text(i, "op_name") == "mla_gen_pre", false};
      const auto hash = static_cast<std::uint64_t>(row.heads * 7919 + row.tokens) * 0x9E3779B97F4A7C15ULL;
      row.held_out = (hash >> 40) % 5 == 0;
      rows.push_back(row);
    }
    if (rows.empty()) continue;
    const double bytes = fp8 ? 1 : 2;
    OperatorCoefficients c;
    double l2 = 3;
    const auto loss = [&] {
      double sum = 0;
      for (const Row& row : rows)
        if (!row.held_out)
          sum += std::min(0.7, std::abs(std::log(price(c, {}, profile, row, bytes, l2) / row.seconds)));
      return sum;
    };
    for (int round = 0; round < 3; ++round)
      calibrate::minimise({&c.memory, &c.fixed_seconds, &c.compute, &c.tile_seconds, &c.overlap, &l2},
                          {0.02, 2e-7, 0.05, 1e-9, 1e-3, 1}, {1, 5e-4, 1, 1e-4, 1, 10}, loss);
    const auto chosen = correction(c, profile, rows, bytes, l2);
    proto::OperatorEfficiency entry;
    for (const auto& surface : chosen) *entry.add_corrections() = surface;
    const auto errors_with = [&](const Corrections& corrections) {
      std::vector<double> ratios;
      for (const Row& row : rows)
        if (row.held_out) ratios.push_back(row.seconds / price(c, corrections, profile, row, bytes, l2));
      return calibrate::relative_errors(ratios);
    };
    const calibrate::RelativeErrors alone = errors_with({});
    const calibrate::RelativeErrors errors = errors_with({&entry, kBatchedGemmFeatures});
    const std::string operator_class = fp8 ? "mla_bmm_fp8" : "mla_bmm";
    print_entry(operator_class, c, errors.median,
                "mla_bmm_perf of " + folder.filename().string() + ", " + std::to_string(rows.size()) +
                    " rows (AIConfigurator, Apache-2.0); the errors are those of one row in five, left out "
                    "of the fit",
                errors.p90, chosen);
    std::fprintf(
        stderr,
        "%s %s: %zu rows, left out: median %.1f %%, p90 %.1f %% (formula alone %.1f %%, %.1f %%); %d "
        "factors\n",
        profile.name().c_str(), operator_class.c_str(), rows.size(), 100 * errors.median, 100 * errors.p90,
        100 * alone.median, 100 * alone.p90, chosen.empty() ? 0 : chosen.front().factors_size());
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run(argc, argv); }
