// Fits the coefficients of attention/plan_cost.h to measured kernels.
//
//   fit_attention KERNELS_FOLDER GPU HARDWARE_JSON BACKEND SOURCE[,SOURCE…]
//
// prints the two OperatorEfficiency objects (extend, decode) as JSON. SOURCE is the kernel_source of the
// rows.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "attention/registry.h"
#include "tests/calibration/attention_rows.h"
#include "tests/calibration/search.h"

namespace tpsim::calibration {
namespace {

using attention::PlanCoefficients;

struct Planned {
  AttentionRow row;
  attention::DecodePlan decode;
  attention::ExtendPlan extend;
};

double fit(const proto::HardwareProfile& profile, const std::vector<Planned>& rows, bool decode,
           PlanCoefficients& c, double* p90) {
  std::vector<double> errors(rows.size());
  const auto price = [&](std::size_t i, const attention::PlanCost& model) {
    return decode ? model.decode(rows[i].decode, rows[i].row.layer).seconds
                  : model.extend(rows[i].extend, rows[i].row.layer).seconds;
  };
  const auto loss = [&] {
    const attention::PlanCost model(profile, c, attention::Residency::kHot);
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      sum += std::min(1.0, std::abs(std::log(price(i, model) / rows[i].row.seconds)));
    }
    return sum / static_cast<double>(rows.size());
  };
  std::vector<double*> values = {&c.compute,     &c.memory,      &c.fixed_seconds, &c.block_seconds,
                                 &c.overlap,     &c.head_dim_64, &c.head_dim_192,  &c.head_dim_256,
                                 &c.fp8_compute, &c.window};
  std::vector<double> low = {0.02, 0.05, 5e-7, 1e-8, 1e-3, 0.2, 0.2, 0.2, 0.1, 0.3};
  std::vector<double> high = {1, 1, 3e-4, 1e-4, 1, 2, 2, 2, 2, 4};
  if (decode) {
    values.insert(values.end(), {&c.block_memory, &c.merge_seconds, &c.fp8_kv, &c.l2_memory});
    low.insert(low.end(), {0.2, 1e-7, 0.2, 1.0});
    high.insert(high.end(), {8, 1e-4, 2, 10.0});
  } else {
    values.push_back(&c.tail);
    low.push_back(1e-3);
    high.push_back(1);
  }
  minimise(values, low, high, loss);
  minimise(values, low, high, loss);
  const attention::PlanCost model(profile, c, attention::Residency::kHot);
  for (std::size_t i = 0; i < rows.size(); ++i)
    errors[i] = std::abs(price(i, model) / rows[i].row.seconds - 1);
  std::sort(errors.begin(), errors.end());
  *p90 = errors[errors.size() * 9 / 10];
  return errors[errors.size() / 2];
}

int run(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: fit_attention KERNELS_FOLDER GPU HARDWARE_JSON BACKEND SOURCE\n";
    return 2;
  }
  std::stringstream text;
  text << std::ifstream(argv[3]).rdbuf();
  proto::HardwareProfile profile;
  if (!google::protobuf::util::JsonStringToMessage(text.str(), &profile).ok()) {
    std::cerr << argv[3] << " is not a hardware profile\n";
    return 2;
  }
  const std::filesystem::path folder = std::filesystem::path(argv[1]) / argv[2];
  for (const bool decode : {false, true}) {
    const std::vector<AttentionRow> measured = attention_rows(folder, argv[5], decode, 1);
    if (measured.empty()) continue;
    const std::size_t every = std::max<std::size_t>(1, measured.size() / 2500);
    auto backend = attention::create_attention_backend(argv[4], profile, 1);
    auto& planned = dynamic_cast<attention::PlannedBackend&>(*backend);
    std::vector<Planned> rows;
    for (std::size_t i = 0; i < measured.size(); i += every) {
      with_metadata(measured[i], decode, [&](const attention::ForwardMetadata& metadata) {
        planned.init_forward_metadata(metadata);
        Planned p{measured[i], {}, {}};
        if (decode) {
          p.decode = planned.decode_plan(measured[i].layer);
        } else {
          p.extend = planned.extend_plan(measured[i].layer);
        }
        rows.push_back(std::move(p));
      });
    }
    PlanCoefficients c;
    double p90 = 0;
    const double median = fit(profile, rows, decode, c, &p90);
    proto::OperatorEfficiency out;
    out.set_operator_class(std::string("attention.") + argv[4] + (decode ? ".decode" : ".extend"));
    write_coefficients(c, out);
    out.set_median_error(median);
    out.set_source(std::string(decode ? "generation" : "context") + "_attention_perf of " + argv[2] + ", " +
                   argv[5] + ", " + std::to_string(measured.size()) + " rows (AIConfigurator, Apache-2.0)");
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    if (!google::protobuf::util::MessageToJsonString(out, &json, options).ok()) return 1;
    std::cout << json << "\n";
    std::cerr << argv[2] << " " << out.operator_class() << ": " << rows.size() << " rows, median error "
              << median * 100 << " %, p90 " << p90 * 100 << " %\n";
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run(argc, argv); }
