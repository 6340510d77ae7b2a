// Fits the coefficients of rank/model/op_cost.h to measured kernels.
//
//   fit_operators KERNELS_FOLDER GPU HARDWARE_JSON [PREFIX]
//
// Prints one OperatorEfficiency object a class, as JSON; only of classes whose name begins with PREFIX.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

#include "launch/calibrate/coordinate_search.h"
#include "launch/kernels/operator_rows.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::calibration {
namespace {

void set(rank::OperatorCosts& costs, const std::string& name, const OperatorCoefficients& c) {
  if (const MatrixRows* matrix = matrix_rows_of(name)) costs.set_matrix(matrix->id, c);
  if (name == "all_reduce.custom") costs.set_custom(c);
  if (name == "all_reduce.nccl") costs.set_nccl(c);
  if (name == "all_gather") costs.set_gather(c);
}

int run(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::cerr << "usage: fit_operators KERNELS_FOLDER GPU HARDWARE_JSON [PREFIX]\n";
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
  for (const std::string& name : operator_classes()) {
    if (argc == 5 && !name.starts_with(argv[4])) continue;
    std::vector<OperatorRow> all = operator_rows(folder, name, profile);
    if (all.empty()) continue;
    std::vector<OperatorRow> rows;
    // Every so many-th of them: the tables are sorted neither by shape nor by time.
    const std::size_t every = std::max<std::size_t>(1, all.size() / 1500);
    for (std::size_t i = 0; i < all.size(); i += every) rows.push_back(all[i]);
    rank::OperatorCosts costs(profile);
    OperatorCoefficients c;
    if (name.starts_with("all_")) c.per_gpu_seconds = 5e-7;
    const auto loss = [&] {
      set(costs, name, c);
      double sum = 0;
      for (const OperatorRow& row : rows) {
        sum += std::min(1.0, std::abs(std::log(price(costs, name, row) / row.seconds)));
      }
      return sum / static_cast<double>(rows.size());
    };
    std::vector<double*> values = {&c.memory, &c.fixed_seconds};
    std::vector<double> low = {0.02, 2e-7};
    std::vector<double> high = {1, 5e-4};
    if (name.starts_with("all_")) {
      values.push_back(&c.per_gpu_seconds);
      low.push_back(1e-9);
      high.push_back(1e-4);
      if (name == "all_reduce.custom" &&
          profile.nvlink()) {  // without NVLink only two GPUs use it, in one shot
        c.two_shot_seconds = 3e-6;
        values.push_back(&c.two_shot_seconds);
        low.push_back(1e-9);
        high.push_back(1e-4);
      }
    } else {
      const rank::MatrixClassRow& row = rank::matrix_class(matrix_rows_of(name)->id);
      c.k_seconds = 1e-10;
      values.insert(values.end(), {&c.compute, &c.tile_seconds, &c.overlap, &c.fill, &c.k_seconds});
      low.insert(low.end(), {0.05, 1e-9, 1e-3, 0.2, 1e-13});
      high.insert(high.end(), {1, 1e-4, 1, 64, 1e-8});
      if (row.moe()) {
        c.fixed_seconds = 1.5e-5;
        values.push_back(&c.rows);
        low.push_back(0.01);
        high.push_back(20);
      } else if (row.quantizes()) {
        values.push_back(&c.quantize);
        low.push_back(0.05);
        high.push_back(4);
      }
    }
    calibrate::minimise(values, low, high, loss);
    calibrate::minimise(values, low, high, loss);
    loss();
    std::vector<double> errors;
    for (const OperatorRow& row : all) errors.push_back(std::abs(price(costs, name, row) / row.seconds - 1));
    std::sort(errors.begin(), errors.end());
    const MatrixRows* matrix = matrix_rows_of(name);
    print_entry(name, c, errors[errors.size() / 2],
                (matrix != nullptr ? std::string(matrix->dtype) : "half") + " rows of " +
                    std::string(argv[2]) + ", " + std::to_string(all.size()) +
                    " of them (AIConfigurator, Apache-2.0)");
    std::cerr << argv[2] << " " << name << ": " << all.size() << " rows, median error "
              << errors[errors.size() / 2] * 100 << " %, p90 " << errors[errors.size() * 9 / 10] * 100
              << " %\n";
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run(argc, argv); }
