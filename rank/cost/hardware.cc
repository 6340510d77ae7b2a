#include "rank/cost/hardware.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/versions.h"
#include "rank/catalogue/catalogue.h"
#include "rank/cost/json_message.h"

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
         nlohmann::json::parse(measured ? *measured : *catalogue::find(other, backend))) {
      proto::OperatorEfficiency& fit = *profile.add_efficiencies();
      read_message(entry, fmt::format("attention/{}.json", backend), "coefficients", fit);
      if (measured) continue;
      fit.set_median_error(0);
      fit.set_source(fmt::format("not measured on {}: carried over from {}, where it was fitted on {}",
                                 profile.name(), profile.attention_stand_in(), fit.source()));
    }
  }
}

// The JSON of a GPU, and its path or name in errors.
struct HardwareText {
  std::string json;
  std::string where;
};
HardwareText text_of(const std::string& hardware) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(hardware, error);
  const bool is_name = catalogue::find("hardware", hardware).has_value();
  const std::string name = is_name || is_file ? hardware : profile_of(hardware);
  if (const auto text = catalogue::find("hardware", name)) return {std::string(*text), name};
  if (!is_file) {
    const std::vector<std::string> names = hardware_catalogue();
    const std::string_view guess = nearest(hardware, names);
    throw_user_error("--hardware {}: neither a known GPU nor a file{} Use {}, or a .json file", hardware,
                     guess.empty() ? "." : fmt::format(", did you mean {}?", guess), fmt::join(names, ", "));
  }
  return {small_file(hardware, "--hardware", "a hardware profile"), hardware};
}

constexpr const char* kHostKey = "host";
constexpr const char* kMeasuredHost = "h200-sxm";

// Which host the JSON of a GPU names.
std::string host_of(const nlohmann::json& json, const std::string& where) {
  const auto host = json.find(kHostKey);
  if (host == json.end()) return kMeasuredHost;
  if (!host->is_string())
    throw_user_error("{}: \"{}\" is {}; it must be a string", where, kHostKey, in_quotes(host->dump()));
  return host->get<std::string>();
}

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

// What is left out would be priced as nothing.
void check_given(const json& object, const Descriptor& message, const std::string& of) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto found = object.find(field.name());
    if (found == object.end()) throw_user_error("{}: \"{}\" is missing", of, field.name());
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && found->is_object())
      check_given(*found, *field.message_type(), fmt::format("{}: {}", of, field.name()));
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE &&
        !(found->is_number() && found->get<double>() >= 0 && found->get<double>() < 1e9))
      throw_user_error("{}: \"{}\" is {}; it must be a number from 0 to 1e9", of, field.name(),
                       found->dump());
  }
}

}  // namespace

proto::HardwareProfile parse_hardware(const std::string& text, const std::string& where) {
  nlohmann::json json = parse_object(text, where, "a hardware profile", "rank/catalogue/hardware");
  host_of(json, where);
  json.erase(kHostKey);  // has a profile of its own
  check_hardware(json, where);
  proto::HardwareProfile profile;
  read_message(json, where, "a hardware profile", profile);
  if (profile.version() != kHardwareProfileVersion) {
    throw_user_error("{}: version {} is not known; this tpsim reads version {}", where, profile.version(),
                     kHardwareProfileVersion);
  }
  return profile;
}

std::vector<std::string> hardware_catalogue() { return catalogue::names("hardware"); }

proto::HardwareProfile load_hardware(const std::string& hardware) {
  const HardwareText text = text_of(hardware);
  proto::HardwareProfile profile = parse_hardware(text.json, text.where);
  const bool has_attention = std::any_of(profile.efficiencies().begin(), profile.efficiencies().end(),
                                         [](const proto::OperatorEfficiency& entry) {
                                           return entry.operator_class().starts_with("attention.");
                                         });
  if (!has_attention) merge_attention(profile);
  return profile;
}

proto::HostProfile load_host(const std::string& hardware) {
  const auto [json, where] = text_of(hardware);
  std::string host = kMeasuredHost;
  if (json.find(kHostKey) != std::string::npos)
    host = host_of(parse_object(json, where, "a hardware profile", "rank/catalogue/hardware"), where);
  if (const auto text = catalogue::find("hosts", host)) return parse_host(*text, host);
  const std::string file = (std::filesystem::path(where).parent_path() / host).string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    throw_user_error(
        "{}: \"{}\" is {}, neither a known host nor a file beside this one; use {}, or a .json file", where,
        kHostKey, in_quotes(host), fmt::join(catalogue::names("hosts"), ", "));
  return parse_host(small_file(file, where, "a host profile"), file);
}

const proto::ConstantFit* find_constant_fit(const proto::HardwareProfile& profile,
                                            std::string_view constant) {
  for (const proto::ConstantFit& fit : profile.constant_fits()) {
    if (fit.constant() == constant) return &fit;
  }
  return nullptr;
}

proto::HostProfile parse_host(std::string_view text, const std::string& where) {
  const json object = parse_object(text, where, "a host profile", "rank/catalogue/hosts");
  check_given(object, *proto::HostProfile::descriptor(), where);
  proto::HostProfile host;
  read_message(object, where, "a host profile", host);
  if (host.version() != kHostProfileVersion)
    throw_user_error("{}: version {} is not known; this tpsim reads version {}", where, host.version(),
                     kHostProfileVersion);
  return host;
}

}  // namespace tpsim::rank
