#include "rank/model/hardware.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/nearest.h"
#include "proto/base/plain_json.h"
#include "proto/versions.h"
#include "rank/catalogue/catalogue.h"
#include "rank/model/hardware_check.h"
#include "rank/model/json_message.h"

namespace tpsim::rank {
namespace {

// Stands beside the name of any device.
constexpr std::array<std::string_view, 5> kAnyDevice = {"nvidia", "tensorcore", "gpu", "dgx", "hgx"};

std::string letters_and_digits(const std::string& name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

template <typename Words>
std::string without(std::string text, const Words& words) {
  for (const std::string_view word : words) {
    const std::size_t at = word.empty() ? std::string::npos : text.find(word);
    if (at != std::string::npos) text.erase(at, word.size());
  }
  return text;
}

// The profile that `name` means, or "": a device of the catalogue under the names that vendors, clouds and
// nvidia-smi give it, as "NVIDIA H200", "H200-SXM" or "NVIDIA A100-SXM4-80GB". What is another device (NVL,
// 40 GB) is not among them.
std::string profile_of(const std::string& name) {
  const std::string rest = without(letters_and_digits(name), kAnyDevice);
  for (const std::string& known : hardware_catalogue()) {
    const proto::HardwareProfile profile =
        parse_hardware(std::string(*catalogue::find("hardware", known)), known);
    const std::string bare = without(rest, profile.name_words());
    if (std::ranges::find(profile.device_names(), bare) != profile.device_names().end()) return known;
  }
  return {};
}

// Coefficients of the attention backends come in files of their own, one a backend: entries by GPU. A backend
// without any for this one takes those of its stand-in.
void merge_attention(proto::HardwareProfile& profile) {
  const std::string own = "attention/" + profile.name();
  const std::string other = "attention/" + profile.attention_stand_in();
  std::set<std::string> backends;
  for (const std::string& kind : {own, other}) {
    for (std::string& backend : catalogue::names(kind)) backends.insert(std::move(backend));
  }
  for (const std::string& backend : backends) {
    const auto measured = catalogue::find(own, backend);
    for (const nlohmann::json& entry :
         parse_json<nlohmann::json>(measured ? *measured : *catalogue::find(other, backend))) {
      proto::OperatorEfficiency& fit = *profile.add_efficiencies();
      if (!read_json(entry, fit)) {
        fit.Clear();
        const auto status = google::protobuf::util::JsonStringToMessage(entry.dump(), &fit);
        if (!status.ok()) throw std::logic_error("catalogue: attention/" + backend + ".json");
      }
      if (measured) continue;
      fit.set_median_error(0);
      fit.set_source(fmt::format("not measured on {}: carried over from {}, where it was fitted on {}",
                                 profile.name(), profile.attention_stand_in(), fit.source()));
    }
  }
}

}  // namespace

proto::HardwareProfile parse_hardware(const std::string& text, const std::string& where) {
  const auto json = parse_json<nlohmann::json>(text, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object())
    throw_user_error("{}: not a hardware profile: not a JSON object, as those of rank/catalogue/hardware are",
                     where);
  check_hardware(json, where);
  proto::HardwareProfile profile;
  if (!read_json(json, profile)) {
    profile.Clear();
    // The text has been parsed: a repeated key has been reduced to its last value.
    const auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &profile);
    if (!status.ok())
      throw_user_error("{}: not a hardware profile: {}", where, std::string(status.message()));
  }
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
  const bool is_name = catalogue::find("hardware", hardware).has_value();
  const std::string name = is_name || is_file ? hardware : profile_of(hardware);
  if (const auto text = catalogue::find("hardware", name)) {
    proto::HardwareProfile profile = parse_hardware(std::string(*text), name);
    merge_attention(profile);
    return profile;
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
