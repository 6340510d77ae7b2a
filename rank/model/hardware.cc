#include "rank/model/hardware.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/nearest.h"
#include "proto/versions.h"
#include "rank/catalogue/catalogue.h"
#include "rank/model/hardware_check.h"

namespace tpsim::rank {
namespace {

// GPUs of the catalogue under the names that vendors, clouds and nvidia-smi give them: "NVIDIA H200",
// "H200-SXM", "Hopper H200", "NVIDIA A100-SXM4-80GB". What is another device (PCIe, NVL, 40 GB) is not among
// them.
struct Gpu {
  std::string_view profile;
  std::string_view gpu;
  std::array<std::string_view, 8> words;  // may stand beside it; longer ones first
};
constexpr std::array<Gpu, 5> kGpus = {{
    {"a100-sxm", "a100", {"ampere", "sxm4", "sxm", "hbm2e", "80gb"}},
    {"h100-sxm", "h100", {"hopper", "sxm5", "sxm", "hbm3", "80gb"}},
    {"h200-sxm", "h200", {"hopper", "sxm5", "sxm", "hbm3e", "141gb"}},
    {"b200", "b200", {"blackwell", "sxm6", "sxm", "hbm3e", "180gb", "192gb"}},
    {"l40s", "l40s", {"lovelace", "ada", "gddr6", "48gb", "pcie"}},
}};
constexpr std::array<std::string_view, 5> kAnyGpu = {"nvidia", "tensorcore", "gpu", "dgx", "hgx"};

// The profile that `name` means, or "".
std::string_view profile_of(const std::string& name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) letters += static_cast<char>(std::tolower(byte));
  }
  const auto without = [](std::string text, std::span<const std::string_view> words) {
    for (const std::string_view word : words) {
      const std::size_t at = word.empty() ? std::string::npos : text.find(word);
      if (at != std::string::npos) text.erase(at, word.size());
    }
    return text;
  };
  const std::string rest = without(std::move(letters), kAnyGpu);
  for (const Gpu& gpu : kGpus) {
    if (without(rest, gpu.words) == gpu.gpu) return gpu.profile;
  }
  return {};
}

// Coefficients of the attention backends come in files of their own, one a backend: entries by GPU.
void merge_attention(proto::HardwareProfile& profile) {
  for (const std::string& backend : catalogue::names("attention")) {
    const nlohmann::json gpus = nlohmann::json::parse(*catalogue::find("attention", backend));
    if (!gpus.contains(profile.name())) continue;
    for (const nlohmann::json& entry : gpus.at(profile.name())) {
      const auto status =
          google::protobuf::util::JsonStringToMessage(entry.dump(), profile.add_efficiencies());
      if (!status.ok()) throw std::logic_error("catalogue: attention/" + backend + ".json");
    }
  }
}

}  // namespace

proto::HardwareProfile parse_hardware(const std::string& text, const std::string& where) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object())
    throw_user_error("{}: not a hardware profile: not a JSON object, as those of rank/catalogue/hardware are",
                     where);
  check_hardware(json, where);
  proto::HardwareProfile profile;
  // The text has been parsed: a repeated key has been reduced to its last value.
  const auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &profile);
  if (!status.ok()) throw_user_error("{}: not a hardware profile: {}", where, std::string(status.message()));
  if (profile.version() != kHardwareProfileVersion) {
    throw_user_error("{}: version {} is not known; this tpsim reads version {}", where, profile.version(),
                     kHardwareProfileVersion);
  }
  return profile;
}

std::vector<std::string> hardware_catalogue() { return catalogue::names("hardware"); }

proto::HardwareProfile load_hardware(const std::string& hardware) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(hardware, error);
  const std::string known(is_file ? std::string_view() : profile_of(hardware));
  for (const std::string& name : {hardware, known}) {
    if (const auto text = catalogue::find("hardware", name)) {
      proto::HardwareProfile profile = parse_hardware(std::string(*text), name);
      merge_attention(profile);
      return profile;
    }
  }
  if (!is_file) {
    const std::vector<std::string> names = hardware_catalogue();
    const std::string_view guess = nearest(hardware, names);
    throw_user_error("--hardware {}: neither a known GPU nor a file{} Use {}, or a .json file", hardware,
                     guess.empty() ? "." : fmt::format(", did you mean {}?", guess), fmt::join(names, ", "));
  }
  if (std::filesystem::file_size(hardware, error) > (1 << 20)) {
    throw_user_error("{}: larger than 1 MiB; that is not a hardware profile", hardware);
  }
  std::ifstream stream(hardware, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream && !stream.eof()) throw_user_error("--hardware {}: cannot be read", hardware);
  proto::HardwareProfile profile = parse_hardware(text, hardware);
  const bool has_attention = std::any_of(profile.efficiencies().begin(), profile.efficiencies().end(),
                                         [](const proto::OperatorEfficiency& entry) {
                                           return entry.operator_class().starts_with("attention.");
                                         });
  if (!has_attention) merge_attention(profile);
  return profile;
}

}  // namespace tpsim::rank
