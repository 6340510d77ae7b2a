// Fits coefficients to our own measurements (measured/GPU_attention.csv, made by measure_attention.py on the
// GPU): ragged batches and cached prefixes too.
//
//   fit_measured CSV HARDWARE_JSON BACKEND "SOURCE"     prints OperatorEfficiency objects (extend, decode)
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

#include "attention/plan_cost.h"
#include "attention/registry.h"
#include "tests/calibration/search.h"

namespace tpsim::calibration {
namespace {

struct Row {
  attention::LayerShape layer;
  std::vector<std::uint32_t> prefixes, lengths;
  double seconds = 0;
  double launches = 0;
  bool ragged = false;
};

// "2048x8;1" = eight times 2048, then 1.
std::vector<std::uint32_t> expand(const std::string& text) {
  std::vector<std::uint32_t> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ';');) {
    const std::size_t x = part.find('x');
    const auto value = static_cast<std::uint32_t>(std::stoul(part.substr(0, x)));
    out.insert(out.end(), x == std::string::npos ? 1 : std::stoul(part.substr(x + 1)), value);
  }
  return out;
}

std::vector<Row> read(const std::string& path, const std::string& backend, bool decode) {
  std::vector<Row> rows;
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  while (std::getline(stream, line)) {
    std::vector<std::string> cells;
    std::stringstream fields(line);
    for (std::string cell; std::getline(fields, cell, ',');) cells.push_back(cell);
    if (cells.size() < 11 || cells[0] != backend || (cells[1] == "decode") != decode) continue;
    Row row;
    row.layer.num_q_heads = static_cast<std::uint32_t>(std::stoul(cells[2]));
    row.layer.num_kv_heads = static_cast<std::uint32_t>(std::stoul(cells[3]));
    row.layer.head_dim = row.layer.v_head_dim = static_cast<std::uint32_t>(std::stoul(cells[4]));
    row.layer.kv_bytes = cells[6].starts_with("fp8") ? 1 : 2;
    row.lengths = expand(cells[8]);
    row.prefixes = decode ? std::vector<std::uint32_t>() : expand(cells[7]);
    row.ragged = cells[8].find(';') != std::string::npos;
    row.seconds = std::stod(cells[9]) / 1e3;
    row.launches = std::stod(cells[10]);
    rows.push_back(std::move(row));
  }
  return rows;
}

double price(attention::AttentionBackend& backend, const Row& row, bool decode, double launch_seconds) {
  attention::ForwardMetadata metadata;
  metadata.forward_mode = decode ? proto::DECODE : proto::EXTEND;
  if (decode) {
    metadata.decode_seq_lens = row.lengths;
  } else {
    metadata.extend_lens = row.lengths;
    metadata.extend_prefix_lens = row.prefixes;
  }
  backend.init_forward_metadata(metadata);
  const double device =
      (decode ? backend.forward_decode(row.layer) : backend.forward_extend(row.layer)).seconds;
  // Chains of small launches run no faster than the host launches them.
  return std::max(device, row.launches * launch_seconds);
}

int run(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: fit_measured CSV HARDWARE_JSON BACKEND SOURCE\n";
    return 2;
  }
  std::stringstream text;
  text << std::ifstream(argv[2]).rdbuf();
  proto::HardwareProfile profile;
  if (!google::protobuf::util::JsonStringToMessage(text.str(), &profile).ok()) {
    std::cerr << argv[2] << " is not a hardware profile\n";
    return 2;
  }
  const std::string name = argv[3];
  for (const bool decode : {false, true}) {
    const std::vector<Row> rows = read(argv[1], name, decode);
    if (rows.empty()) continue;
    attention::PlanCoefficients c;
    double launch = 3.4e-6;
    const std::string operator_class = "attention." + name + (decode ? ".decode" : ".extend");
    const auto errors_of = [&](bool only_ragged) {
      proto::HardwareProfile candidate = profile;
      candidate.clear_efficiencies();
      for (const bool d : {false, true}) {
        proto::OperatorEfficiency& entry = *candidate.add_efficiencies();
        entry.set_operator_class("attention." + name + (d ? ".decode" : ".extend"));
        attention::write_coefficients(c, entry);
      }
      const auto backend = attention::create_attention_backend(name, candidate, 1);
      std::vector<double> errors;
      for (const Row& row : rows) {
        if (only_ragged && !row.ragged) continue;
        errors.push_back(price(*backend, row, decode, launch) / row.seconds);
      }
      return errors;
    };
    const auto loss = [&] {
      double sum = 0;
      for (const double ratio : errors_of(false)) sum += std::min(1.0, std::abs(std::log(ratio)));
      return sum;
    };
    std::vector<double*> values = {&c.compute,       &c.memory,  &c.fixed_seconds,
                                   &c.block_seconds, &c.overlap, &launch};
    std::vector<double> low = {0.02, 0.05, 5e-7, 1e-8, 1e-3, 1e-6};
    std::vector<double> high = {1, 1, 3e-4, 1e-4, 1, 1e-5};
    if (decode) {
      values.insert(values.end(), {&c.block_memory, &c.merge_seconds, &c.fp8_kv});
      low.insert(low.end(), {0.2, 1e-7, 0.2});
      high.insert(high.end(), {8, 1e-4, 2});
    } else {
      values.insert(values.end(), {&c.tail, &c.merge_seconds});
      low.insert(low.end(), {1e-3, 1e-7});
      high.insert(high.end(), {1, 1e-4});
    }
    minimise(values, low, high, loss);
    minimise(values, low, high, loss);
    const auto quantile = [&](bool ragged, double q) {
      std::vector<double> errors = errors_of(ragged);
      for (double& e : errors) e = std::abs(e - 1);
      std::sort(errors.begin(), errors.end());
      return errors.empty() ? 0
                            : errors[static_cast<std::size_t>(q * static_cast<double>(errors.size() - 1))];
    };
    proto::OperatorEfficiency out;
    out.set_operator_class(operator_class);
    attention::write_coefficients(c, out);
    out.set_median_error(quantile(false, 0.5));
    out.set_source(std::string(argv[4]) + ", " + std::to_string(rows.size()) + " rows");
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    if (!google::protobuf::util::MessageToJsonString(out, &json, options).ok()) return 1;
    std::cout << json << "\n";
    std::cerr << operator_class << ": " << rows.size() << " rows, median error " << 100 * quantile(false, 0.5)
              << " %, p90 " << 100 * quantile(false, 0.9) << " %; ragged: " << 100 * quantile(true, 0.5)
              << " %; launch " << launch * 1e6 << " us\n";
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run(argc, argv); }
