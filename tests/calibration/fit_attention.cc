// Fits the coefficients of attention/plan_cost.h to measured kernels.
//
//   fit_attention HARDWARE_JSON BACKEND [--table FOLDER KERNEL_SOURCE] [--own CSV] [--start ATTENTION_JSON]
//
// prints the OperatorEfficiency objects (extend, decode) as JSON lines. --table: context_attention_perf and
// generation_attention_perf of FOLDER; --own: a file of measure_attention.py. With both, each has half of the
// weight. --start: coefficients of the same backend on another GPU; what only that GPU's rows can tell
// (factors for head sizes, kernels without tensor cores, separate prefixes) is kept from there.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "attention/registry.h"
#include "launch/kernels/attention_rows.h"
#include "tests/calibration/fit_files.h"
#include "launch/calibrate/search.h"

namespace tpsim::calibration {
namespace {

using attention::LayerShape;
using attention::PlanCost;
using attention::Residency;

struct Planned {
  AttentionRow row;
  double weight = 1;  // in the fit; 0: kept aside, to see whether the fit holds for shapes it has not seen
  attention::DecodePlan decode;
  attention::ExtendPlan extend;
};

struct Arguments {
  std::string hardware, backend, table, source, own, start;
};

class Fit {
 public:
  Fit(const proto::HardwareProfile& profile, attention::PlannedBackend& backend, bool decode)
      : profile_(profile), backend_(backend), decode_(decode) {}

  // At most `most` of the rows, evenly. One in four of a table is kept aside, by a hash of its shape.
  void add(const std::vector<AttentionRow>& rows, std::size_t most, bool keep_aside) {
    const std::size_t every = std::max<std::size_t>(1, rows.size() / most);
    const std::size_t first = rows_.size();
    for (std::size_t i = 0; i < rows.size(); i += every) {
      with_metadata(rows[i], decode_, [&](const attention::ForwardMetadata& metadata) {
        backend_.init_forward_metadata(metadata);
        Planned p{rows[i], 1, {}, {}};
        if (decode_) {
          p.decode = backend_.decode_plan(p.row.layer);
        } else {
          p.extend = backend_.extend_plan(p.row.layer);
        }
        rows_.push_back(std::move(p));
      });
    }
    std::size_t used = 0;
    for (std::size_t i = first; i < rows_.size(); ++i) {
      if (keep_aside && shape_hash(rows_[i].row) % 4 == 0) rows_[i].weight = 0;
      used += rows_[i].weight > 0 ? 1 : 0;
    }
    for (std::size_t i = first; i < rows_.size(); ++i) rows_[i].weight /= double(used);
  }

  std::size_t size() const { return rows_.size(); }

  // Returns what is left of the loss.
  double minimise(PlanCoefficients& c) {
    std::vector<double*> values;
    std::vector<double> low, high;
    const auto vary = [&](double& value, double least, double most) {
      if (value < least) value = std::sqrt(least * most);  // the search multiplies
      values.push_back(&value);
      low.push_back(least);
      high.push_back(most);
    };
    vary(c.compute, 0.02, 1);
    vary(c.memory, 0.05, 1);
    vary(c.fixed_seconds, 5e-7, 3e-4);
    vary(c.block_seconds, 1e-8, 1e-4);
    vary(c.overlap, 1e-3, 1);
    if (any([](const Planned& p) { return p.row.residency == Residency::kHot; })) vary(c.l2_memory, 1, 10);
    const auto head = [&](double& value, std::uint32_t least, std::uint32_t most) {
      if (any([&](const Planned& p) { return p.row.layer.head_dim > least && p.row.layer.head_dim <= most; }))
        vary(value, 0.1, 4);
    };
    head(c.head_dim_64, 0, 64);
    head(c.head_dim_192, 128, 192);
    head(c.head_dim_256, 192, 256);
    head(c.head_dim_512, 256, 1024);
    if (any([](const Planned& p) { return p.row.layer.q_bytes == 1; })) vary(c.fp8_compute, 0.1, 2);
    if (any([](const Planned& p) { return p.row.layer.q_bytes == 2 && p.row.layer.fp8_kv(); })) {
      vary(c.fp8_kv, 0.2, 2);
      vary(c.fp8_convert, 0.05, 2);
    }
    if (any([](const Planned& p) { return p.row.layer.sliding_window != 0; })) {
      vary(c.window, 0.1, 4);
      vary(c.window_seconds, 1e-8, 1e-4);
      if (any([](const Planned& p) { return p.extend.walks_window; })) vary(c.walk, 0.01, 1);
    }
    if (any([](const Planned& p) { return p.row.layer.head_dim > 128 && p.row.layer.head_dim <= 192; }))
      vary(c.head_dim_192_seconds, 1e-8, 1e-4);
    if (backend_.name() == "torch_native") vary(c.gather, 0.05, 2);
    vary(c.block_compute, 0.3, 8);
    if (any([](const Planned& p) {
          return p.decode.merge || p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0;
        }))
      vary(c.merge_seconds, 1e-7, 1e-4);
    if (any([](const Planned& p) { return p.decode.merge; })) vary(c.merge_part_seconds, 1e-9, 1e-5);
    if (any([](const Planned& p) { return p.row.layer.fp8_kv(); }) &&
        any([](const Planned& p) { return !p.row.layer.fp8_kv(); }))
      vary(c.fp8_seconds, 1e-8, 1e-4);
    vary(c.write, 0.01, 10);
    if (any([](const Planned& p) { return p.row.layer.fp8_kv(); })) vary(c.cast, 0.01, 10);
    if (decode_) {
      vary(c.block_memory, 0.2, 8);
      vary(c.block_width_seconds, 1e-9, 1e-5);
      if (any([](const Planned& p) { return p.decode.resident > 1; })) vary(c.resident, 1, 8);
      if (any([](const Planned& p) { return p.decode.tensor_cores; }) &&
          any([](const Planned& p) { return !p.decode.tensor_cores; }))
        vary(c.vector_compute, 0.005, 1);
    } else {
      vary(c.tail, 1e-3, 1);
      if (any([](const Planned& p) { return p.extend.prefix_rows != 0; })) vary(c.prefix, 0.1, 2);
    }
    const auto loss = [&] {
      const PlanCost hot(profile_, c, Residency::kHot);
      const PlanCost cold(profile_, c, Residency::kCold);
      double sum = 0;
      for (Planned& p : rows_) {
        if (p.weight <= 0) continue;
        sum += p.weight * std::min(1.0, std::abs(std::log(price(p, hot, cold) / p.row.seconds)));
      }
      return sum;
    };
    double left = 0;
    for (int round = 0; round < 3; ++round) left = calibration::minimise(values, low, high, loss);
    return left;
  }

  // Median and 90th percentile of the relative error of the rows that `which` accepts.
  template <typename Which>
  std::pair<double, double> errors(const PlanCoefficients& c, Which which) {
    const PlanCost hot(profile_, c, Residency::kHot);
    const PlanCost cold(profile_, c, Residency::kCold);
    std::vector<double> errors;
    for (Planned& p : rows_) {
      if (which(p)) errors.push_back(std::abs(price(p, hot, cold) / p.row.seconds - 1));
    }
    if (errors.empty()) return {0, 0};
    std::sort(errors.begin(), errors.end());
    return {errors[errors.size() / 2], errors[errors.size() * 9 / 10]};
  }

  void dump(const PlanCoefficients& c, const std::string& path) {
    const PlanCost hot(profile_, c, Residency::kHot);
    const PlanCost cold(profile_, c, Residency::kCold);
    std::ofstream out(path, std::ios::app);
    for (Planned& p : rows_) {
      std::uint64_t tokens = 0, prefix = 0;
      for (const auto n : p.row.lengths) tokens += n;
      for (const auto n : p.row.prefixes) prefix += n;
      out << backend_.name() << "," << decode_ << "," << (p.row.residency == Residency::kHot) << ","
          << p.row.layer.num_q_heads << "," << p.row.layer.num_kv_heads << "," << p.row.layer.head_dim << ","
          << p.row.layer.sliding_window << "," << p.row.layer.q_bytes << "," << p.row.layer.kv_bytes() << ","
          << p.row.lengths.size() << "," << tokens << "," << prefix << ","
          << *std::max_element(p.row.lengths.begin(), p.row.lengths.end()) << "," << p.row.seconds * 1e6
          << "," << price(p, hot, cold) * 1e6 << "\n";
    }
  }

 private:
  template <typename Which>
  bool any(Which which) const {
    return std::any_of(rows_.begin(), rows_.end(), which);
  }
  double price(Planned& p, const PlanCost& hot, const PlanCost& cold) {
    const PlanCost& model = p.row.residency == Residency::kHot ? hot : cold;
    return decode_ ? backend_.decode_cost(model, p.decode, p.row.layer).seconds
                   : backend_.extend_cost(model, p.extend, p.row.layer).seconds;
  }

  static std::uint64_t shape_hash(const AttentionRow& row) {
    const LayerShape& l = row.layer;
    std::uint64_t hash = 1469598103934665603U;
    for (const std::uint64_t part : std::initializer_list<std::uint64_t>{
             l.num_q_heads, l.num_kv_heads, l.head_dim, l.sliding_window, l.q_bytes,
             static_cast<std::uint64_t>(l.kv_format), row.lengths.size(), row.lengths[0]}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash >> 8;
  }

  const proto::HardwareProfile& profile_;
  attention::PlannedBackend& backend_;
  bool decode_;
  std::vector<Planned> rows_;
};

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
    const std::string operator_class = "attention." + args.backend + (decode ? ".decode" : ".extend");
    auto backend = attention::create_attention_backend(args.backend, profile, 1);
    Fit fit(profile, dynamic_cast<attention::PlannedBackend&>(*backend), decode);
    std::string source;
    if (!args.table.empty()) {
      const auto rows = attention_rows(args.table, args.source, decode, 1);
      fit.add(rows, 2500, true);
      source = std::string(decode ? "generation" : "context") + "_attention_perf of " +
               std::filesystem::path(args.table).filename().string() + ", " + args.source + ", " +
               std::to_string(rows.size()) +
               " rows (AIConfigurator, Apache-2.0); error on one in four of them, kept aside";
    }
    if (!args.own.empty()) {
      const auto rows = measured_rows(args.own, args.backend, decode);
      fit.add(rows, 2000, false);
      source += (source.empty() ? "" : "; ") + std::to_string(rows.size()) +
                " rows of tests/calibration/measured/" + std::filesystem::path(args.own).filename().string() +
                ", ragged ones and cached prefixes among them";
    }
    if (fit.size() == 0) continue;
    // The search stays near where it starts.
    std::vector<PlanCoefficients> starts = {coefficients_of<PlanCoefficients>(start, operator_class)};
    if (!args.start.empty()) {
      PlanCoefficients fresh;
      fresh.prefix = starts[0].prefix;  // no table has cached prefixes
      starts.push_back(fresh);
    }
    if (decode) {
      for (std::size_t i = 0, count = starts.size(); i < count; ++i) {
        starts.push_back(starts[i]);
        starts.back().resident = 8;
      }
    }
    PlanCoefficients c;
    double least = std::numeric_limits<double>::infinity();
    for (PlanCoefficients& candidate : starts) {
      const double left = fit.minimise(candidate);
      if (left < least) {
        least = left;
        c = candidate;
      }
    }
    auto [median, p90] = fit.errors(c, [](const Planned& p) { return p.weight <= 0; });
    if (median <= 0) std::tie(median, p90) = fit.errors(c, [](const Planned&) { return true; });
    print_entry(operator_class, c, median, source);
    std::fprintf(stderr, "%s %s: %zu rows, median %.1f %%, p90 %.1f %%\n", profile.name().c_str(),
                 operator_class.c_str(), fit.size(), 100 * median, 100 * p90);
    for (const bool hot : {true, false}) {
      for (const std::uint32_t q : {2U, 1U}) {
        for (const std::uint32_t kv : {2U, 1U}) {
          const auto is = [&](const Planned& p) {
            return (p.row.residency == Residency::kHot) == hot && p.row.layer.q_bytes == q &&
                   p.row.layer.kv_bytes() == kv;
          };
          const auto [m, n] = fit.errors(c, is);
          if (m > 0)
            std::fprintf(stderr, "   %s q%u kv%u: median %.1f %%, p90 %.1f %%\n", hot ? "table" : "own  ", q,
                         kv, 100 * m, 100 * n);
        }
      }
    }
    if (const char* path = std::getenv("FIT_DUMP")) fit.dump(c, path);
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) {
  tpsim::calibration::Arguments args;
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto option = [&](const std::string& name, std::vector<std::string*> values) {
    const auto at = std::find(words.begin(), words.end(), name);
    if (at == words.end() || words.end() - at <= static_cast<std::ptrdiff_t>(values.size())) return;
    for (std::size_t i = 0; i < values.size(); ++i) *values[i] = at[static_cast<std::ptrdiff_t>(i) + 1];
    words.erase(at, at + static_cast<std::ptrdiff_t>(values.size()) + 1);
  };
  option("--table", {&args.table, &args.source});
  option("--own", {&args.own});
  option("--start", {&args.start});
  if (words.size() != 2 || (args.table.empty() && args.own.empty())) {
    std::cerr << "usage: fit_attention HARDWARE_JSON BACKEND [--table FOLDER KERNEL_SOURCE] [--own CSV] "
                 "[--start ATTENTION_JSON]\n";
    return 2;
  }
  args.hardware = words[0];
  args.backend = words[1];
  return tpsim::calibration::run(args);
}
