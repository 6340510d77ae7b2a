// What a hardware profile must say.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "attention/gpu_generation.h"
#include "attention/selection/registry.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"
#include "rank/cost/hardware.h"
#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

struct Constant {
  const char* key;
  double least;
  double most;
  const char* unit;
  enum {
    kRequired,
    kOptional,
    kZeroOrMore
  } presence;  // kZeroOrMore: optional, and 0 says what its absence does
};

// The ranges are wider than any GPU's by orders of magnitude: they catch slips and wrong units.
constexpr Constant kConstants[] = {
    {"version", 0, 1e9, "of the form of this file", Constant::kRequired},
    {"multiprocessors", 1, 10000, "of the GPU", Constant::kRequired},
    {"clock_hz", 1e6, 1e11, "hertz", Constant::kZeroOrMore},
    {"dense_flops_bf16", 1e10, 1e18, "operations per second", Constant::kRequired},
    {"dense_flops_fp8", 1e10, 1e18, "operations per second", Constant::kZeroOrMore},
    {"dense_flops_fp4", 1e10, 1e18, "operations per second", Constant::kZeroOrMore},
    {"memory_bytes", 1e9, 1e14, "bytes", Constant::kRequired},
    {"memory_bandwidth", 1e9, 1e16, "bytes per second", Constant::kRequired},
    {"l2_bytes", 1e3, 1e11, "bytes", Constant::kZeroOrMore},
    {"link_bandwidth", 1e6, 1e15, "bytes per second", Constant::kRequired},
    {"gpus_per_node", 1, 1024, "that are joined at link_bandwidth", Constant::kZeroOrMore},
    {"gpu_hour_cost", 1e-6, 1e6, "money of one GPU for an hour", Constant::kZeroOrMore},
    {"kernel_launch_seconds", 0, 1, "seconds", Constant::kRequired},
    {"graph_replay_seconds", 0, 1, "seconds", Constant::kRequired},
    {"graph_kernel_gap_seconds", 0, 1, "seconds", Constant::kRequired},
    {"scheduler_step_seconds", 0, 1, "seconds", Constant::kRequired},
    {"piecewise_layer_seconds", 0, 1, "seconds", Constant::kRequired},
    {"shared_memory_bytes", 1e3, 1e9, "bytes of one multiprocessor", Constant::kZeroOrMore},
};

constexpr Constant kNetwork[] = {
    {"bandwidth", 1e6, 1e15, "bytes per second, of one GPU", Constant::kRequired},
    {"latency_seconds", 0, 1, "seconds", Constant::kRequired},
};

constexpr Constant kEfficiency[] = {
    {"compute", 1e-3, 1, "a share of dense_flops_bf16", Constant::kRequired},
    {"memory", 1e-3, 1, "a share of the bandwidth", Constant::kRequired},
    {"fixed_seconds", 0, 1, "seconds", Constant::kRequired},
    {"median_error", 0, 1000, "relative", Constant::kOptional},
    {"p90_error", 0, 1000, "relative", Constant::kOptional},
};

// Further coefficients divide and multiply; times and shares that are added may be 0.
Constant parameter(const std::string& name) {
  if (name.ends_with("_seconds")) return {name.c_str(), 0, 1, "seconds", Constant::kOptional};
  if (name == "overlap" || name == "tail" || name == "wave_tail" || name == "in_order" ||
      name == "shared_link")
    return {name.c_str(), 0, 1000, "a share", Constant::kOptional};
  return {name.c_str(), 1e-3, 1000, "a factor", Constant::kOptional};
}

std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + "…" : text;
}

// `object`[constant.key]; `of` names the object in the sentence.
void check_constant(const Json& object, const Constant& constant, const std::string& of) {
  const bool zero = constant.presence == Constant::kZeroOrMore;
  const std::string wanted = fmt::format("a number from {} to {} ({}){}", constant.least, constant.most,
                                         constant.unit, zero ? ", or 0 for none" : "");
  if (!object.contains(constant.key)) {
    if (constant.presence != Constant::kRequired) return;
    throw_user_error("{}: \"{}\" is missing; it must be {}", of, constant.key, wanted);
  }
  const Json& value = object.at(constant.key);
  const double number = value.is_number() ? value.get<double>() : -1;
  if (zero && number == 0) return;
  if (!(number >= constant.least) || number > constant.most)
    throw_user_error("{}: \"{}\" is {}; it must be {}", of, constant.key, shown(value), wanted);
}

// The JSON type of a field, in words, or "" where `value` has it.
const char* wrong_type(const Json& value, const FieldDescriptor& field) {
  if (field.is_map()) return value.is_object() ? "" : "an object {\"name\": number, …}";
  if (field.is_repeated()) return value.is_array() ? "" : "an array";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return value.is_string() ? "" : "a string";
    case FieldDescriptor::CPPTYPE_BOOL:
      return value.is_boolean() ? "" : "true or false";
    case FieldDescriptor::CPPTYPE_UINT32:
      return value.is_number_unsigned() ? "" : "a whole number";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return value.is_object() ? "" : "an object";
    default:
      return value.is_number() ? "" : "a number";
  }
}

// Every key is a field of `message`, and of its type.
void check_types(const Json& object, const Descriptor& message, const std::string& of) {
  if (!object.is_object()) throw_user_error("{}: is {}; it must be an object", of, shown(object));
  for (const auto& [key, value] : object.items()) {
    const FieldDescriptor* field = message.FindFieldByName(key);
    if (field == nullptr) {
      std::vector<std::string_view> names;
      names.reserve(static_cast<std::size_t>(message.field_count()));
      for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
      throw_user_error("{}: {} is not a key of a hardware profile{}", of, in_quotes(key),
                       did_you_mean(key, names));
    }
    const std::string wanted = wrong_type(value, *field);
    if (!wanted.empty()) throw_user_error("{}: \"{}\" is {}; it must be {}", of, key, shown(value), wanted);
    if (field->is_map() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) check_types(value, *field->message_type(), fmt::format("{}: {}", of, key));
    for (std::size_t i = 0; field->is_repeated() && i < value.size(); ++i)
      check_types(value[i], *field->message_type(), fmt::format("{}: {}[{}]", of, key, i));
  }
}

void check_text(const Json& object, const char* key, const std::string& of) {
  if (!object.contains(key) || object.at(key).get<std::string>().empty())
    throw_user_error("{}: \"{}\" is missing; it must be a string", of, key);
}

bool is_operator_class(const std::string& name) {
  for (const std::string_view known : operator_classes()) {
    if (name == known) return true;
  }
  // MiniMax M3's, of every backend that is wrapped (attention/block_sparse.h).
  if (name.starts_with("attention.msa.") && (name.ends_with(".extend") || name.ends_with(".decode")))
    return true;
  return std::ranges::any_of(
      attention::backend_list(), [&name](const attention::BackendDescription* backend) {
        const std::string begin = fmt::format("attention.{}.", backend->row.name);
        // A backend of several kernels names them: "attention.nsa.fa3.decode".
        return name.starts_with(begin) &&
               (name.ends_with(".extend") || name.ends_with(".decode") || name == begin + "mla_extend" ||
                name == begin + "mla_decode" || name == begin + "mla_prefill");
      });
}

void check_parameters(const Json& parameters, const std::string& operator_class, const std::string& of) {
  const std::vector<std::string_view> known = parameter_names(operator_class);
  for (const auto& [name, value] : parameters.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw_user_error("{}: {} is not a parameter of this class{}", of, in_quotes(name),
                       did_you_mean(name, known));
    check_constant(parameters, parameter(name), of);
  }
}

void check_corrections(const Json& corrections, const std::string& operator_class, const std::string& of) {
  const std::span<const std::string_view> known = feature_names(operator_class);
  for (const Json& entry : corrections) {
    proto::CorrectionSurface surface;
    for (const Json& axis : entry.value("axes", Json::array())) {
      const std::string feature = axis.value("feature", "");
      if (std::find(known.begin(), known.end(), feature) == known.end())
        throw_user_error("{}: {} is not a feature of this class{}", of, in_quotes(feature),
                         did_you_mean(feature, {known.begin(), known.end()}));
      auto& own = *surface.add_axes();
      own.set_feature(feature);
      for (const Json& point : axis.value("points", Json::array()))
        own.add_points(point.is_number() ? point.get<double>() : 0);
    }
    for (const Json& factor : entry.value("factors", Json::array())) {
      if (!factor.is_number_unsigned() || factor == 0 || factor > 1000000)
        throw_user_error(
            "{}: a factor of \"corrections\" is {}; it must be a whole number from 1 to 1000000 "
            "(thousandths)",
            of, shown(factor));
      surface.add_factors(factor.get<std::uint32_t>());
    }
    try {
      CorrectionSurface(surface, known);
    } catch (const std::invalid_argument& wrong) {
      throw_user_error("{}: \"corrections\": {}", of, wrong.what());
    }
  }
}

void check_efficiencies(const Json& entries, const std::string& where) {
  std::vector<std::string> seen;
  for (const Json& entry : entries) {
    check_text(entry, "operator_class", where + ": an entry of \"efficiencies\"");
    const std::string name = entry.at("operator_class").get<std::string>();
    if (!is_operator_class(name))
      throw_user_error("{}: operator class {} is not known; use {}, or attention.BACKEND.extend and .decode",
                       where, in_quotes(name), fmt::join(operator_classes(), ", "));
    const std::string of = fmt::format("{}: operator class \"{}\"", where, name);
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw_user_error("{}: is given twice; give it once", of);
    seen.push_back(name);
    for (const Constant& constant : kEfficiency) check_constant(entry, constant, of);
    if (entry.contains("parameters")) check_parameters(entry.at("parameters"), name, of);
    if (entry.contains("corrections")) check_corrections(entry.at("corrections"), name, of);
  }
}

}  // namespace

void check_hardware(const Json& json, const std::string& where) {
  check_types(json, *proto::HardwareProfile::descriptor(), where);
  check_text(json, "name", where);
  check_text(json, "architecture", where);
  const std::string architecture = json.at("architecture").get<std::string>();
  if (!attention::parse_gpu_generation(architecture))
    throw_user_error("{}: \"architecture\" is {}; it must be one of {}", where, in_quotes(architecture),
                     attention::kAllGenerations.names());
  if (!json.contains("nvlink"))
    throw_user_error("{}: \"nvlink\" is missing; it must be true, or false for PCIe", where);
  for (const Constant& constant : kConstants) check_constant(json, constant, where);
  if (json.contains("network")) {
    const std::string of = where + ": network";
    for (const Constant& constant : kNetwork) check_constant(json.at("network"), constant, of);
    check_text(json.at("network"), "source", of);
  }
  if (json.contains("efficiencies")) check_efficiencies(json.at("efficiencies"), where);
}

}  // namespace tpsim::rank
