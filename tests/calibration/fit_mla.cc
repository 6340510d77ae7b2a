// Fits the coefficients of MLA kernels (launch/lab/calibrate/attention_fit.h) to measured rows.
//
//   fit_mla HARDWARE_JSON BACKEND KERNEL SOURCES…
//
// KERNEL: mla_decode, mla_extend (absorbed) or mla_prefill (expanded). SOURCES, one or more of
//   --table FOLDER KERNEL_SOURCE    generation_mla_perf or context_mla_perf
//   --module FOLDER KERNEL_SOURCE   mla_*_module_perf, less what else a row times
//   (launch/lab/calibrate/mla_bmm_fit.h)
//   --beside FOLDER OTHER           wideep_*_mla_perf, modules beside those of OTHER, whose kernel is fitted
//   --own CSV                       a file of measure_mla.py
//   --ragged CSV                    a file of measure_ragged_mla.py, which says itself what is left out
// Prints the OperatorEfficiency object as a JSON line, and what it missed to stderr. FIT_DUMP=FILE receives
// every row with what was predicted.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "launch/lab/calibrate/attention_fit.h"
#include "launch/lab/calibrate/mla_bmm_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "rank/cost/hardware.h"
#include "tests/calibration/fit_files.h"
#include "tests/calibration/tool_words.h"

namespace tpsim::kernels {
namespace {

using calibrate::AttentionFit;
using calibrate::AttentionSource;

std::string file_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

struct Sources {
  std::vector<AttentionSource> rows;
  std::string text;

  void add(std::vector<AttentionRow> more, const std::string& before, const std::string& after,
           bool parted = false) {
    text += (text.empty() ? "" : "; ") + before + std::to_string(more.size()) + after;
    rows.push_back({std::move(more), parted});
  }
};

template <typename Which>
kernels::RelativeErrors errors(const AttentionFit& fit, Which which) {
  std::vector<double> ratios;
  for (const AttentionFit::Priced& p : fit.priced)
    if (p.left_out && which(p)) ratios.push_back(p.row->seconds / p.seconds);
  return kernels::relative_errors(ratios);
}

void print_errors(const std::string& of, const kernels::RelativeErrors& errors) {
  if (errors.rows > 0)
    std::fprintf(stderr, "   %s: median %.1f %%, p90 %.1f %%\n", of.c_str(), 100 * errors.median,
                 100 * errors.p90);
}

void dump(const AttentionFit& fit, const std::string& path) {
  std::ofstream out(path);
  out << "heads,kv,batch,length,held_out,rest_us,us,predicted_us\n";
  for (const AttentionFit::Priced& p : fit.priced)
    out << p.row->layer.num_q_heads << "," << p.row->layer.kv_bytes() << "," << p.row->lengths.size() << ","
        << p.row->lengths.front() << "," << p.left_out << "," << p.row->rest_seconds * 1e6 << ","
        << p.row->seconds * 1e6 << "," << p.seconds * 1e6 << "\n";
}

int run(std::vector<std::string> words) {
  std::string table, source, own, ragged, module, module_source, wideep, known;
  take_option("--table", {&table, &source}, words);
  take_option("--own", {&own}, words);
  take_option("--ragged", {&ragged}, words);
  take_option("--module", {&module, &module_source}, words);
  take_option("--beside", {&wideep, &known}, words);
  if (words.size() != 3 ||
      (table.empty() && own.empty() && ragged.empty() && module.empty() && wideep.empty())) {
    std::cerr << "usage: fit_mla HARDWARE_JSON BACKEND KERNEL [--table FOLDER KERNEL_SOURCE] "
                 "[--module FOLDER KERNEL_SOURCE] [--beside FOLDER OTHER] [--own CSV] [--ragged CSV]\n";
    return 2;
  }
  AttentionKernel kernel = AttentionKernel::kMlaDecode;
  for (const AttentionKernel k :
       {AttentionKernel::kMlaDecode, AttentionKernel::kMlaExtend, AttentionKernel::kMlaPrefill})
    if (words[2] == class_suffix(k)) kernel = k;
  const auto read_in = read_profile(words[0]);
  if (!read_in) return 2;
  const proto::HardwareProfile& profile = *read_in;
  const std::string phase = kernel == AttentionKernel::kMlaDecode ? "generation" : "context";
  constexpr const char* kLicence = " (AIConfigurator, Apache-2.0)";
  Sources sources;
  if (!table.empty())
    sources.add(attention_rows(table, source, kernel),
                phase + "_mla_perf of " + file_of(table) + ", " + source + ", ",
                std::string(" rows") + kLicence);
  if (!module.empty())
    sources.add(calibrate::module_rows(module, module_source, kernel, profile),
                "mla_" + phase + "_module_perf of " + file_of(module) + ", " + module_source + ", ",
                std::string(" rows, less their projections") + kLicence);
  if (!wideep.empty())  // the other kernel's price is that of the whole catalogue
    sources.add(calibrate::rows_beside(wideep, words[1], known, kernel, rank::load_hardware(profile.name())),
                "wideep_" + phase + "_mla_perf of " + file_of(wideep) + ", ",
                " rows beside those of " + known + kLicence);
  if (!own.empty())
    sources.add(measured_rows(own, words[1], kernel), "",
                " rows of tests/calibration/measured/" + file_of(own));
  if (!ragged.empty())
    sources.add(measured_rows(ragged, words[1], kernel), "",
                " ragged rows of tests/calibration/measured/" + file_of(ragged), /*parted=*/true);
  if (std::all_of(sources.rows.begin(), sources.rows.end(),
                  [](const AttentionSource& of) { return of.rows.empty(); })) {
    std::cerr << "no rows\n";
    return 1;
  }
  AttentionFit fit = calibrate::fit_attention(profile, words[1], kernel, sources.rows);
  fit.entry.set_source(sources.text + "; the errors are those of rows left out of the fit");
  print_entry(fit.entry);
  int factors = 0;
  for (const proto::CorrectionSurface& surface : fit.entry.corrections()) factors += surface.factors_size();
  std::fprintf(stderr,
               "%s %s: %zu rows, left out: median %.1f %%, p90 %.1f %% (formula alone %.1f %%, %.1f %%); "
               "%d factors\n",
               profile.name().c_str(), fit.entry.operator_class().c_str(), fit.priced.size(),
               100 * fit.left_out.median, 100 * fit.left_out.p90, 100 * fit.formula.median,
               100 * fit.formula.p90, factors);
  for (const int bytes : {2, 1})
    print_errors("kv of " + std::to_string(bytes) + " bytes", errors(fit, [&](const AttentionFit::Priced& p) {
                   return p.row->layer.kv_bytes() == bytes;
                 }));
  if (!ragged.empty())
    print_errors("ragged", errors(fit, [](const AttentionFit::Priced& p) { return p.row->held; }));
  if (const char* path = std::getenv("FIT_DUMP")) dump(fit, path);
  return 0;
}

}  // namespace
}  // namespace tpsim::kernels

int main(int argc, char** argv) { return tpsim::kernels::run({argv + 1, argv + argc}); }
