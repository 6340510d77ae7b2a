#include "rank/model/hardware.h"

#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "proto/error.h"
#include "proto/versions.h"
#include "rank/catalogue/catalogue.h"

namespace tpsim::rank {
namespace {

proto::HardwareProfile parse(const std::string& text, const std::string& where) {
  proto::HardwareProfile profile;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &profile);
  if (!status.ok()) {
    throw_user_error("{}: not a hardware profile: {}", where, std::string(status.message()));
  }
  if (profile.version() != kHardwareProfileVersion) {
    throw_user_error("{}: version {} is not known; this tpsim reads version {}", where, profile.version(),
                     kHardwareProfileVersion);
  }
  const auto positive = [&](double value, const char* field) {
    if (!(value > 0) || value > 1e18) throw_user_error("{}: \"{}\" must be a positive number", where, field);
  };
  positive(profile.multiprocessors(), "multiprocessors");
  positive(profile.dense_flops_bf16(), "dense_flops_bf16");
  positive(profile.memory_bytes(), "memory_bytes");
  positive(profile.memory_bandwidth(), "memory_bandwidth");
  positive(profile.link_bandwidth(), "link_bandwidth");
  const auto at_least_zero = [&](double value, const char* field) {
    if (!(value >= 0) || value > 1e18)
      throw_user_error("{}: \"{}\" must be a number, at least 0", where, field);
  };
  at_least_zero(profile.clock_hz(), "clock_hz");
  at_least_zero(profile.dense_flops_fp8(), "dense_flops_fp8");
  at_least_zero(profile.dense_flops_fp4(), "dense_flops_fp4");
  at_least_zero(profile.l2_bytes(), "l2_bytes");
  at_least_zero(profile.shared_memory_bytes(), "shared_memory_bytes");
  for (const proto::OperatorEfficiency& entry : profile.efficiencies()) {
    for (const double share : {entry.compute(), entry.memory()}) {
      if (!(share > 0) || share > 1) {
        throw_user_error(
            "{}: operator class \"{}\": \"compute\" and \"memory\" must be above 0 and at most 1", where,
            entry.operator_class());
      }
    }
    if (!(entry.fixed_seconds() >= 0) || entry.fixed_seconds() > 1) {
      throw_user_error("{}: operator class \"{}\": \"fixed_seconds\" must be from 0 to 1", where,
                       entry.operator_class());
    }
    for (const auto& [name, value] : entry.parameters()) {
      if (!(value >= 0) || value > 1e9) {
        throw_user_error("{}: operator class \"{}\": parameter \"{}\" must be from 0 to 1e9", where,
                         entry.operator_class(), name);
      }
    }
  }
  for (const double seconds :
       {profile.kernel_launch_seconds(), profile.graph_replay_seconds(), profile.graph_kernel_gap_seconds(),
        profile.scheduler_step_seconds(), profile.piecewise_layer_seconds()}) {
    if (!(seconds >= 0) || seconds > 1)
      throw_user_error("{}: launch times must be seconds from 0 to 1", where);
  }
  if (profile.architecture().empty() || profile.name().empty()) {
    throw_user_error("{}: \"name\" and \"architecture\" must be given", where);
  }
  return profile;
}

// Coefficients of the attention backends come in files of their own.
void merge_attention(proto::HardwareProfile& profile) {
  const auto text = catalogue::find("attention", profile.name());
  if (!text) return;
  for (const nlohmann::json& entry : nlohmann::json::parse(*text)) {
    const auto status = google::protobuf::util::JsonStringToMessage(entry.dump(), profile.add_efficiencies());
    if (!status.ok()) throw std::logic_error("catalogue: attention/" + profile.name() + ".json");
  }
}

}  // namespace

std::vector<std::string> hardware_catalogue() { return catalogue::names("hardware"); }

proto::HardwareProfile load_hardware(const std::string& hardware) {
  if (const auto text = catalogue::find("hardware", hardware)) {
    proto::HardwareProfile profile = parse(std::string(*text), hardware);
    merge_attention(profile);
    return profile;
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(hardware, error)) {
    std::string names;
    for (const std::string& name : hardware_catalogue()) names += (names.empty() ? "" : ", ") + name;
    throw_user_error("--hardware {}: neither a known GPU nor a file; use {}, or a .json file", hardware,
                     names);
  }
  if (std::filesystem::file_size(hardware, error) > (1 << 20)) {
    throw_user_error("{}: larger than 1 MiB; that is not a hardware profile", hardware);
  }
  std::ifstream stream(hardware, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  proto::HardwareProfile profile = parse(text, hardware);
  if (profile.efficiencies().empty()) merge_attention(profile);
  return profile;
}

}  // namespace tpsim::rank
