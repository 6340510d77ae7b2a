#include "rank/cost/hardware.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/versions.h"
#include "rank/catalogue/catalogue.h"

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

namespace {

// `make(text)`, or what this thread made of the same text the last time: thousands of settings of one sweep
// ask for one GPU, and reading its JSON takes longer than all else of them.
template <typename Make>
auto made_of(const HardwareText& text, Make make) {
  thread_local HardwareText last;
  thread_local decltype(make(text)) made;
  if (last.json != text.json || last.where != text.where) {
    last = {};
    made = make(text);
    last = text;
  }
  return made;
}

proto::HardwareProfile whole_profile(const HardwareText& text) {
  proto::HardwareProfile profile = parse_hardware(text.json, text.where);
  const bool has_attention = std::any_of(profile.efficiencies().begin(), profile.efficiencies().end(),
                                         [](const proto::OperatorEfficiency& entry) {
                                           return entry.operator_class().starts_with("attention.");
                                         });
  if (!has_attention) merge_attention(profile);
  return profile;
}

proto::HostProfile whole_host(const HardwareText& text) {
  const auto& [json, where] = text;
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

}  // namespace

proto::HardwareProfile load_hardware(const std::string& hardware) {
  return made_of(text_of(hardware), whole_profile);
}

proto::HostProfile load_host(const std::string& hardware) { return made_of(text_of(hardware), whole_host); }

std::uint32_t gpus_of_node(const proto::HardwareProfile& profile) {
  return profile.gpus_per_node() > 0 ? profile.gpus_per_node() : 8;
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

namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;

// One value of a field that is repeated, or is not.
bool read_value(const json& value, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      if (!value.is_number()) return false;
      const auto number = value.get<double>();
      repeated ? reflection.AddDouble(&message, &field, number)
               : reflection.SetDouble(&message, &field, number);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      if (!value.is_number_unsigned()) return false;
      const auto number = value.get<std::uint64_t>();
      if (number > std::numeric_limits<std::uint32_t>::max()) return false;
      const auto narrow = static_cast<std::uint32_t>(number);
      repeated ? reflection.AddUInt32(&message, &field, narrow)
               : reflection.SetUInt32(&message, &field, narrow);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      if (!value.is_number_unsigned()) return false;
      const auto number = value.get<std::uint64_t>();
      repeated ? reflection.AddUInt64(&message, &field, number)
               : reflection.SetUInt64(&message, &field, number);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean() || repeated) return false;
      reflection.SetBool(&message, &field, value.get<bool>());
      return true;
    case FieldDescriptor::CPPTYPE_STRING: {
      if (!value.is_string() || field.type() != FieldDescriptor::TYPE_STRING) return false;
      const auto& text = value.get_ref<const std::string&>();
      repeated ? reflection.AddString(&message, &field, text) : reflection.SetString(&message, &field, text);
      return true;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      // Well-known types have spellings of their own.
      if (field.message_type()->file()->package() == "google.protobuf") return false;
      return read_json(value, repeated ? *reflection.AddMessage(&message, &field)
                                       : *reflection.MutableMessage(&message, &field));
    default:
      return false;
  }
}

// A map is read as the repeated entries that it is on the wire.
bool read_map(const json& object, const FieldDescriptor& field, Message& message) {
  const FieldDescriptor& key_field = *field.message_type()->map_key();
  const FieldDescriptor& value_field = *field.message_type()->map_value();
  if (!object.is_object() || key_field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return false;
  for (const auto& [key, value] : object.items()) {
    Message& entry = *message.GetReflection()->AddMessage(&message, &field);
    entry.GetReflection()->SetString(&entry, &key_field, key);
    if (!read_value(value, value_field, entry)) return false;
  }
  return true;
}

}  // namespace

bool read_json(const json& json, Message& message) {
  if (!json.is_object()) return false;
  for (const auto& [name, value] : json.items()) {
    const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr || field->real_containing_oneof() != nullptr) return false;
    if (field->is_map()) {
      if (!read_map(value, *field, message)) return false;
      continue;
    }
    if (!field->is_repeated()) {
      if (!read_value(value, *field, message)) return false;
      continue;
    }
    if (!value.is_array()) return false;
    for (const nlohmann::json& element : value)
      if (!read_value(element, *field, message)) return false;
  }
  return true;
}

void read_message(const json& json, const std::string& where, std::string_view kind, Message& message) {
  if (read_json(json, message)) return;
  message.Clear();
  // The text has been parsed: a repeated key has been reduced to its last value.
  const auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &message);
  if (!status.ok()) throw_user_error("{}: not {}: {}", where, kind, std::string(status.message()));
}

json parse_object(std::string_view text, const std::string& where, std::string_view kind,
                  std::string_view examples) {
  auto parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object())
    throw_user_error("{}: not {}: not a JSON object, as those of {} are", where, kind, examples);
  return parsed;
}

std::string small_file(const std::string& path, const std::string& where, std::string_view kind) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) > (1 << 20) && !error)
    throw_user_error("{}: larger than 1 MiB; that is not {}", path, kind);
  // A folder opens, and throws when it is read.
  if (std::filesystem::is_directory(path, error)) throw_user_error("{} {}: is a folder", where, path);
  std::ifstream stream(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream && !stream.eof()) throw_user_error("{} {}: cannot be read", where, path);
  return text;
}

}  // namespace tpsim::rank
