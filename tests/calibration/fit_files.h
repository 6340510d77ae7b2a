// What the fits read and print: a hardware profile, and entries of its efficiencies.
#pragma once

#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>

#include "proto/coefficients.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibration {

// Nothing, and a line on stderr, where the file is none.
inline std::optional<proto::HardwareProfile> read_profile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  proto::HardwareProfile profile;
  if (google::protobuf::util::JsonStringToMessage(text.str(), &profile).ok()) return profile;
  std::cerr << path << " is not a hardware profile\n";
  return std::nullopt;
}

// One OperatorEfficiency, as JSON in a line on stdout.
inline void print_entry(const proto::OperatorEfficiency& entry) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(entry, &json, options).ok())
    throw std::logic_error(entry.operator_class() + " cannot be written");
  std::cout << json << "\n";
}

// `p90_error` 0: unknown.
template <typename Coefficients>
void print_entry(const std::string& operator_class, const Coefficients& c, double median_error,
                 const std::string& source, double p90_error = 0,
                 std::span<const proto::CorrectionSurface> corrections = {}) {
  proto::OperatorEfficiency out;
  out.set_operator_class(operator_class);
  write_coefficients(c, out);
  out.set_median_error(median_error);
  out.set_p90_error(p90_error);
  for (const proto::CorrectionSurface& surface : corrections) *out.add_corrections() = surface;
  out.set_source(source);
  print_entry(out);
}

}  // namespace tpsim::calibration
