// Fits sparse attention (launch/lab/calibrate/sparse_fit.h) to measured modules.
//
//   fit_sparse HARDWARE_JSON KERNELS_FOLDER [DUMP]
//
// prints OperatorEfficiency objects ("attention.nsa.KERNEL.extend" …) as JSON lines, and errors to stderr.
// DUMP receives every row left out with what was predicted.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "launch/lab/calibrate/sparse_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::kernels {
namespace {

using calibrate::SparseFit;
using Priced = SparseFit::Priced;

std::string text_of(const kernels::RelativeErrors& errors) {
  if (errors.rows == 0) return "none";
  char text[100];
  std::snprintf(text, sizeof text, "%zu left out, median %.1f %%, p90 %.1f %%", errors.rows,
                100 * errors.median, 100 * errors.p90);
  return text;
}

// Of the rows left out that `which` accepts.
template <typename Which>
std::string errors(const SparseFit& fit, Which which, double Priced::*seconds = &Priced::seconds) {
  std::vector<double> ratios;
  for (const Priced& p : fit.priced)
    if (p.row.held_out && which(p)) ratios.push_back(p.row.seconds / p.*seconds);
  return text_of(kernels::relative_errors(ratios));
}

// Of (a row with the indexer) less (the row without), over pairs of equal shape.
std::string indexer_errors(const SparseFit& fit) {
  const auto shape = [](const SparseRow& row) {
    return std::tuple(row.kernel, row.model.hidden, row.fp8_gemm, row.fp8_kv, row.heads, row.batch, row.q_len,
                      row.prefix);
  };
  std::map<decltype(shape(SparseRow{})), const Priced*> without;
  for (const Priced& p : fit.priced)
    if (!p.row.indexer && !p.hosts) without[shape(p.row)] = &p;
  std::vector<double> ratios;
  for (const Priced& p : fit.priced) {
    const auto found = without.find(shape(p.row));
    if (!p.row.held_out || p.hosts || !p.row.indexer || found == without.end()) continue;
    const double measured = p.row.seconds - found->second->row.seconds;
    if (measured > 0) ratios.push_back(measured / (p.seconds - found->second->seconds));
  }
  return text_of(kernels::relative_errors(ratios));
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: fit_sparse HARDWARE_JSON KERNELS_FOLDER [DUMP]\n";
    return 2;
  }
  const auto read_in = read_profile(argv[1]);
  if (!read_in) return 2;
  const std::filesystem::path folder = argv[2];
  for (const bool decode : {true, false}) {
    const std::string phase = decode ? "decode" : "extend";
    SparseFit fit = calibrate::fit_sparse(*read_in, decode, sparse_rows(folder, decode));
    const auto beyond_host = [](const Priced& p) { return !p.hosts; };
    std::fprintf(stderr,
                 "%s %s: %zu rows, %zu passed over, formulas alone %s, corrected %s; %zu of the host's time, "
                 "with them %s\n",
                 read_in->name().c_str(), phase.c_str(), fit.rows, fit.passed_over,
                 errors(fit, beyond_host, &Priced::formula_seconds).c_str(), errors(fit, beyond_host).c_str(),
                 fit.of_the_host, errors(fit, [](const Priced&) { return true; }).c_str());
    std::fprintf(stderr, "   indexer alone: %s\n", indexer_errors(fit).c_str());
    for (const auto& [name, p] : {std::pair("bf16", fit.bf16), std::pair("fp8", fit.fp8)})
      std::fprintf(stderr, "   products %s: compute %.2f memory %.2f rest %.1f us, per row %.2f ns\n", name,
                   p.compute, p.memory, p.rest * 1e6, p.per_row * 1e9);
    for (SparseFit::Class& of : fit.classes) {
      for (const bool indexer : {true, false})
        std::fprintf(stderr, "   %s%s: %s\n", of.name.c_str(), indexer ? " with indexer" : " without",
                     errors(fit, [&](const Priced& p) {
                       return !p.hosts && p.row.kernel == of.name && p.row.indexer == indexer;
                     }).c_str());
      of.entry.set_source(std::string("dsa_") + (decode ? "generation" : "context") + "_module_perf of " +
                          folder.filename().string() +
                          ", SGLang 0.5.14 (AIConfigurator, Apache-2.0); error of held-out modules");
      print_entry(of.entry);
    }
    if (argc <= 3) continue;
    std::ofstream dump(argv[3], decode ? std::ios::trunc : std::ios::app);
    for (const Priced& p : fit.priced)
      if (p.row.held_out && !p.hosts)
        dump << phase << "," << p.row.kernel << "," << p.row.indexer << "," << p.row.model.hidden << ","
             << p.row.fp8_gemm << "," << p.row.fp8_kv << "," << p.row.heads << "," << p.row.batch << ","
             << p.row.q_len << "," << p.row.prefix << "," << p.row.seconds * 1e6 << "," << p.seconds * 1e6
             << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::kernels

int main(int argc, char** argv) { return tpsim::kernels::run(argc, argv); }
