// What the fits read and print: a hardware profile, and entries of its efficiencies.
#pragma once

#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "proto/hardware.pb.h"

namespace tpsim::kernels {

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

}  // namespace tpsim::kernels
