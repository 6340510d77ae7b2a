// Fits an attention backend of one GPU (launch/lab/calibrate/attention_fit.h) to measured kernels.
//
//   fit_attention HARDWARE_JSON BACKEND [--table FOLDER KERNEL_SOURCE] [--own CSV] [--ragged CSV]
//                 [--start ATTENTION_JSON] [--phase extend|decode] [--kernel paged]
//
// prints the OperatorEfficiency objects (extend, decode) as JSON lines. --table: context_attention_perf and
// generation_attention_perf of FOLDER; --own and --ragged: files of measure_attention.py and
// measure_ragged.py, of the latter what it does not hold back. Each has the same weight. --start:
// coefficients of the same backend on another GPU; what only that GPU's rows can tell (kernels without tensor
// cores, separate prefixes) is kept from there. FIT_DUMP=FILE appends every row with what was predicted.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/lab/calibrate/attention_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "tests/calibration/fit_files.h"
#include "tests/calibration/tool_words.h"

namespace tpsim::kernels {
namespace {

using attention::Residency;
using calibrate::AttentionFit;
using calibrate::AttentionSource;

struct Arguments {
  std::string hardware, backend, table, source, own, ragged, start, phase, kernel;
};

std::string file_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

void dump(const AttentionFit& fit, const std::string& path) {
  std::ofstream out(path, std::ios::app);
  for (const AttentionFit::Priced& p : fit.priced) {
    const attention::LayerShape& layer = p.row->layer;
    std::uint64_t tokens = 0, prefix = 0;
    for (const auto n : p.row->lengths) tokens += n;
    for (const auto n : p.row->prefixes) prefix += n;
    out << fit.entry.operator_class() << "," << (p.row->residency == Residency::kHot) << "," << p.left_out
        << "," << layer.num_q_heads << "," << layer.num_kv_heads << "," << layer.head_dim << ","
        << layer.sliding_window << "," << layer.q_bytes << "," << layer.kv_bytes() << ","
        << p.row->lengths.size() << "," << tokens << "," << prefix << ","
        << *std::max_element(p.row->lengths.begin(), p.row->lengths.end()) << "," << p.row->in_pieces << ","
        << p.row->seconds * 1e6 << "," << p.seconds * 1e6 << "," << p.formula_seconds * 1e6 << "\n";
  }
}

void report(const proto::HardwareProfile& profile, const AttentionFit& fit) {
  std::map<std::string, std::vector<double>> ratios, formula;
  for (const AttentionFit::Priced& p : fit.priced) {
    const attention::LayerShape& layer = p.row->layer;
    const std::string kind = std::string(p.row->residency == Residency::kHot ? "table" : "own  ") +
                             (p.left_out ? " unseen" : " fitted") + " q" + std::to_string(layer.q_bytes) +
                             " kv" + (layer.fp8_kv() ? "1" : "2");
    for (const std::string& of : {kind, std::string(p.left_out ? "all unseen" : "all fitted")}) {
      ratios[of].push_back(p.row->seconds / p.seconds);
      formula[of].push_back(p.row->seconds / p.formula_seconds);
    }
  }
  int factors = 0;
  for (const auto& surface : fit.entry.corrections()) factors += surface.factors_size();
  std::fprintf(stderr, "%s %s: %zu rows, %d factors\n", profile.name().c_str(),
               fit.entry.operator_class().c_str(), fit.priced.size(), factors);
  for (const auto& [kind, of] : ratios) {
    const auto now = kernels::relative_errors(of), before = kernels::relative_errors(formula[kind]);
    std::fprintf(stderr, "   %-22s %6zu rows, median %.1f %%, p90 %.1f %% (formula alone %.1f %%, %.1f %%)\n",
                 kind.c_str(), now.rows, 100 * now.median, 100 * now.p90, 100 * before.median,
                 100 * before.p90);
  }
}

int run(const Arguments& args) {
  const auto read_in = read_profile(args.hardware);
  if (!read_in) return 2;
  const proto::HardwareProfile& profile = *read_in;
  proto::HardwareProfile start;
  if (!args.start.empty()) {
    for (const auto& entry : nlohmann::json::parse(std::ifstream(args.start))) {
      if (!google::protobuf::util::JsonStringToMessage(entry.dump(), start.add_efficiencies()).ok()) return 2;
    }
  }
  for (const bool decode : {false, true}) {
    if (!args.phase.empty() && (args.phase == "decode") != decode) continue;
    const AttentionKernel kernel = decode ? AttentionKernel::kDecode : AttentionKernel::kExtend;
    const std::string operator_class = "attention." + args.backend +
                                       (args.kernel.empty() ? "" : "." + args.kernel) +
                                       (decode ? ".decode" : ".extend");
    std::vector<AttentionSource> sources;
    std::string source;
    const auto add = [&](std::vector<AttentionRow> rows, bool parted, const std::string& name) {
      if (args.backend == "flashinfer" && !decode)
        std::erase_if(rows,
                      [&](const AttentionRow& row) { return row.in_pieces != (args.kernel == "paged"); });
      if (rows.empty()) return;
      if (!source.empty()) source += "; ";
      source += std::to_string(rows.size()) + " rows of " + name;
      sources.push_back({std::move(rows), parted});
    };
    if (!args.table.empty())
      add(attention_rows(args.table, args.source, kernel), false,
          std::string(decode ? "generation" : "context") + "_attention_perf of " + file_of(args.table) +
              ", " + args.source + " (AIConfigurator, Apache-2.0)");
    if (!args.own.empty())
      add(measured_rows(args.own, args.backend, kernel), false,
          "tests/calibration/measured/" + file_of(args.own));
    if (!args.ragged.empty())
      add(measured_rows(args.ragged, args.backend, kernel), true,
          "tests/calibration/measured/" + file_of(args.ragged));
    if (sources.empty()) continue;
    // The search stays near where it starts.
    std::vector<PlanCoefficients> starts = {coefficients_of<PlanCoefficients>(start, operator_class)};
    if (decode && starts[0].resident <= 1) {
      starts.push_back(starts[0]);
      starts.back().resident = 8;
    }
    AttentionFit fit = calibrate::fit_attention(profile, args.backend, kernel, sources, starts);
    fit.entry.set_operator_class(operator_class);
    fit.entry.set_source(source + "; errors of those kept aside, one shape in four" +
                         (args.ragged.empty() ? "" : " and the ragged ones marked so"));
    print_entry(fit.entry);
    report(profile, fit);
    if (const char* path = std::getenv("FIT_DUMP")) dump(fit, path);
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::kernels

int main(int argc, char** argv) {
  tpsim::kernels::Arguments args;
  std::vector<std::string> words(argv + 1, argv + argc);
  tpsim::kernels::take_option("--table", {&args.table, &args.source}, words);
  tpsim::kernels::take_option("--own", {&args.own}, words);
  tpsim::kernels::take_option("--ragged", {&args.ragged}, words);
  tpsim::kernels::take_option("--start", {&args.start}, words);
  tpsim::kernels::take_option("--phase", {&args.phase}, words);
  tpsim::kernels::take_option("--kernel", {&args.kernel}, words);
  if (words.size() != 2 || (args.table.empty() && args.own.empty() && args.ragged.empty())) {
    std::cerr << "usage: fit_attention HARDWARE_JSON BACKEND [--table FOLDER KERNEL_SOURCE] [--own CSV] "
                 "[--ragged CSV] [--start ATTENTION_JSON] [--phase extend|decode] [--kernel paged]\n";
    return 2;
  }
  args.hardware = words[0];
  args.backend = words[1];
  return tpsim::kernels::run(args);
}
