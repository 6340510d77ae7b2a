// Fits DeepSeek V4's or MiniMax M3's attention (launch/lab/calibrate/compressed_fit.h) to measured modules.
//
//   fit_compressed dsv4|msa HARDWARE_JSON KERNELS_FOLDER
//
// prints OperatorEfficiency objects ("attention.dsv4.csa.extend" …, and those of hyper-connections;
// "attention.msa.blocks.extend" …) as JSON lines, and errors to stderr.
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "launch/lab/calibrate/compressed_fit.h"
#include "launch/lab/calibrate/fit_operators.h"
#include "launch/lab/kernels/compressed_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "launch/lab/kernels/operator_rows.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::kernels {
namespace {

int run(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: fit_compressed dsv4|msa HARDWARE_JSON KERNELS_FOLDER\n";
    return 2;
  }
  const auto read_in = read_profile(argv[2]);
  if (!read_in) return 2;
  const bool blocks = std::string(argv[1]) == "msa";
  const std::filesystem::path folder = argv[3];
  constexpr std::size_t kMostRows = 2500;  // of a table
  std::vector<CompressedRow> rows;
  const auto add = [&rows](std::vector<CompressedRow> of_table) {
    rows.insert(rows.end(), std::make_move_iterator(of_table.begin()),
                std::make_move_iterator(of_table.end()));
  };
  for (const char* const name : {"msa_generation_module_perf", "msa_context_module_perf"})
    if (blocks) add(block_sparse_rows(folder, name, *read_in, kMostRows).rows);
  for (const char* const kind : {"csa", "hca"}) {
    if (blocks) break;
    for (const char* const phase : {"generation", "context"}) {
      const std::string name = std::string("dsv4_") + kind + "_" + phase + "_module_perf";
      if (!std::filesystem::exists(table_file(folder, name))) continue;
      add(compressed_rows(folder, name, *read_in, kMostRows));
    }
  }
  const auto print = [&](calibrate::ClassFit& of, const std::string& table) {
    std::fprintf(stderr, "%s %s: %zu rows; left out %zu, median %.1f %%, p90 %.1f %%; formulas %.1f, %.1f\n",
                 read_in->name().c_str(), of.entry.operator_class().c_str(), of.rows, of.left_out.rows,
                 100 * of.left_out.median, 100 * of.left_out.p90, 100 * of.formula.median,
                 100 * of.formula.p90);
    of.entry.set_source(table + " of " + folder.filename().string() +
                        (blocks ? ", SGLang 0.5.16" : ", SGLang 0.5.14") +
                        " (AIConfigurator, Apache-2.0); error of held-out rows");
    print_entry(of.entry);
  };
  for (calibrate::CompressedFit& of : calibrate::fit_compressed(*read_in, std::move(rows)))
    print(of, blocks ? "msa_*_module_perf" : "dsv4_*_module_perf");
  if (blocks || !std::filesystem::exists(table_file(folder, "mhc_module_perf"))) return 0;
  for (const char* const name : {"mhc.pre", "mhc.post"}) {
    const std::vector<OperatorRow> of_class = operator_rows(folder, name, *read_in);
    if (of_class.size() < calibrate::kLeastRows) continue;
    calibrate::ClassFit of = calibrate::fit_operator(name, of_class, *read_in);
    print(of, "mhc_module_perf");
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::kernels

int main(int argc, char** argv) { return tpsim::kernels::run(argc, argv); }
