// The quantisation that a checkpoint declares: quantization_config of its config.json, by quant_method.
#include <string>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/config/config_reader.h"
#include "rank/config/quantization_config.h"

namespace tpsim::rank {
namespace {

using Pattern = QuantizationConfig::Pattern;

constexpr std::size_t kMostIgnored = 100'000;

// A list of names under the first of `keys` that is there.
std::vector<std::string> names(const ConfigReader& config, std::initializer_list<const char*> keys) {
  std::vector<std::string> out;
  for (const char* key : keys) {
    if (!config.has(key)) continue;
    const Json& list = config.json()[key];
    if (!list.is_array() || list.size() > kMostIgnored)
      throw_user_error("{}: key \"{}\" must be a list of modules", config.where(), key);
    for (const Json& entry : list) {
      if (!entry.is_string())
        throw_user_error("{}: key \"{}\" must be a list of modules", config.where(), key);
      if (!entry.get_ref<const std::string&>().empty()) out.push_back(entry.get<std::string>());
    }
    break;
  }
  return out;
}

constexpr std::size_t kLongestExpression = 1000;  // the library's parser is recursive

std::regex expression(const std::string& text, const std::string& where) {
  if (text.size() > kLongestExpression)
    throw_user_error("{}: {} is longer than {} characters", where, in_quotes(text), kLongestExpression);
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) {
    throw_user_error("{}: {} is not a regular expression", where, in_quotes(text));
  }
}

// Weights in a group along the inputs under `key`; -1: the whole row.
std::uint32_t group_of(const ConfigReader& config, const char* key, int otherwise) {
  const Json value = config.has(key) ? config.json()[key] : Json(otherwise);
  if (!value.is_number_integer() || (value.get<double>() != -1 && !(value.get<double>() >= 1)) ||
      value.get<double>() > 1 << 20)
    throw_user_error("{}: key \"{}\" must be -1 or a whole number from 1 to {}", config.where(), key,
                     1 << 20);
  return value.get<double>() < 0 ? 0 : value.get<std::uint32_t>();
}

[[noreturn]] void refuse_bits(const std::string& where, const std::string& what) {
  throw_user_error("{}: {} have not been measured, so tpsim has no price for them; it knows 4-bit groups",
                   where, what);
}

void set_all(QuantizationConfig& config, const WeightFormat& scheme) {
  config.linear = config.experts = scheme;
}

// fp8.py: Fp8Config.from_config.
QuantizationConfig read_fp8(const ConfigReader& config) {
  QuantizationConfig out;
  out.method = "fp8";
  out.least_capability = 80;
  WeightFormat scheme{WeightFormat::Kind::kFp8, 0, 0, false, ActivationFormat::kFp8};
  if (config.has("weight_block_size")) {
    const Json& block = config.json()["weight_block_size"];
    const auto side = [](const Json& value) {
      return value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 1 << 16;
    };
    if (!block.is_array() || block.size() != 2 || !side(block[0]) || !side(block[1]))
      throw_user_error("{}: key \"weight_block_size\" must be two whole numbers, as [128, 128]",
                       config.where());
    scheme.block_n = block[0].get<std::uint32_t>();
    scheme.block_k = block[1].get<std::uint32_t>();
    if (config.text("activation_scheme", "dynamic") != "dynamic") {
      throw_user_error(
          "{}: key \"activation_scheme\" must be \"dynamic\" with weight_block_size, as SGLang asks",
          config.where());
    }
  }
  const std::string activation = config.text("activation_scheme", "dynamic");
  if (activation != "dynamic" && activation != "static")
    throw_user_error("{}: key \"activation_scheme\" must be \"dynamic\" or \"static\"", config.where());
  set_all(out, scheme);
  for (std::string name : names(config, {"ignored_layers", "modules_to_not_convert"})) {
    if (name.starts_with("model.")) name.erase(0, 6);
    out.ignored.push_back("model." + name);  // SGLang keeps both
    out.ignored.push_back(std::move(name));
  }
  return out;
}

// fp8.py with use_mxfp8: 32 inputs of an output share a scale of 8 bit.
QuantizationConfig read_mxfp8(const ConfigReader& config) {
  if (!config.text("moe_quant_algo", "").empty())
    throw_user_error(
        "{}: key \"moe_quant_algo\" is {}: experts packed in another format, and the nvfp4 KV cache that "
        "SGLang keeps beside them, are not simulated",
        config.where(), in_quotes(config.text("moe_quant_algo", "")));
  QuantizationConfig out = read_fp8(config);
  out.method = "mxfp8";
  out.least_capability = 100;
  set_all(out, {WeightFormat::Kind::kFp8, 1, 32, false, ActivationFormat::kFp8});
  return out;
}

// gptq.py: GPTQMarlinConfig, which takes over what its kernels can run (symmetric, 4 bit).
QuantizationConfig read_gptq(const ConfigReader& config) {
  QuantizationConfig out;
  const std::uint32_t bits = config.number("bits", 1, 16);
  if (bits != 4) refuse_bits(config.where(), fmt::format("GPTQ weights of {} bits", bits));
  const bool symmetric = config.flag("sym", true);
  out.method = symmetric ? "gptq_marlin" : "gptq";
  out.least_capability = symmetric ? 80 : 60;
  const std::uint32_t group = group_of(config, "group_size", 128);
  set_all(out, {WeightFormat::Kind::kInt4, 1, group, true, ActivationFormat::k16Bit});
  if (config.text("checkpoint_format", "gptq") == "gptq_v2") out.gptq_zero_offset = 0;
  if (config.flag("lm_head", false)) out.head = out.linear;
  if (config.has("dynamic")) {
    const Json& dynamic = config.json()["dynamic"];
    if (!dynamic.is_object()) throw_user_error("{}: key \"dynamic\" must be an object", config.where());
    for (const auto& [pattern, value] : dynamic.items()) {
      if (pattern.starts_with("-:"))
        out.ignored_expressions.push_back(expression(pattern.substr(2), config.where()));
      else if (value.is_object() && (value.contains("bits") || value.contains("group_size")))
        refuse_bits(config.where(), "other bits or groups for some modules (\"dynamic\")");
    }
  }
  return out;
}

// awq/awq.py: AWQMarlinConfig.
QuantizationConfig read_awq(const ConfigReader& config) {
  QuantizationConfig out;
  out.method = "awq_marlin";
  out.least_capability = 80;
  const std::uint32_t bits = config.number(config.has("w_bit") ? "w_bit" : "bits", 1, 16);
  if (bits != 4) refuse_bits(config.where(), fmt::format("AWQ weights of {} bits", bits));
  const char* key = config.has("q_group_size") ? "q_group_size" : "group_size";
  const std::uint32_t group = group_of(config, key, 128);
  set_all(out,
          {WeightFormat::Kind::kInt4, 1, group, config.flag("zero_point", true), ActivationFormat::k16Bit});
  out.pattern = Pattern::kSubstring;
  out.ignored = names(config, {"modules_to_not_convert"});
  return out;
}

// mxfp4.py: experts alone, whatever modules_to_not_convert says.
QuantizationConfig read_mxfp4() {
  QuantizationConfig out;
  out.method = "mxfp4";
  out.least_capability = 80;
  out.experts = {WeightFormat::Kind::kMxfp4, 1, 32, false, ActivationFormat::k16Bit};
  return out;
}

// One of compressed-tensors' config_groups: its weights and input_activations.
WeightFormat compressed_scheme(const ConfigReader& weights, const Json& activations) {
  const std::uint32_t bits = weights.number("num_bits", 1, 16);
  const std::string type = weights.text("type", "int");
  std::string strategy = weights.text("strategy", weights.has("group_size") ? "group" : "tensor");
  const bool activated = activations.is_object();
  WeightFormat scheme;
  if (strategy == "channel") scheme.block_n = 1;
  if (strategy == "group" || strategy == "tensor_group") {
    scheme.block_n = 1;
    scheme.block_k = group_of(weights, "group_size", -1);
  }
  if (strategy == "block") {
    const Json block = weights.has("block_structure") ? weights.json()["block_structure"] : Json({128, 128});
    if (block != Json({128, 128}))
      throw_user_error("{}: key \"block_structure\" must be [128, 128]; other blocks have not been measured",
                       weights.where());
    scheme.block_n = scheme.block_k = 128;
  }
  if (type == "float" && bits == 8 && activated) {
    scheme.kind = WeightFormat::Kind::kFp8;
    scheme.activation = ActivationFormat::kFp8;
  } else if (type == "int" && bits == 8 && activated) {
    scheme.kind = WeightFormat::Kind::kInt8;
    scheme.activation = ActivationFormat::kInt8;
  } else if (type == "int" && bits == 4 && !activated) {
    scheme.kind = WeightFormat::Kind::kInt4;
    scheme.zero_points = !weights.flag("symmetric", true);
  } else if (type == "float" && bits == 4 && activated && strategy == "tensor_group" &&
             scheme.block_k == 16) {
    scheme.kind = WeightFormat::Kind::kNvfp4;
    scheme.activation = ActivationFormat::kNvfp4;
  } else {
    throw_user_error(
        "{}: {} weights of {} bits{} have not been measured; tpsim knows fp8 and int8 with quantised "
        "activations, int4 without, and nvfp4",
        weights.where(), type, bits, activated ? " with quantised activations" : " with 16-bit activations");
  }
  return scheme;
}

// compressed_tensors.py.
QuantizationConfig read_compressed(const ConfigReader& config) {
  QuantizationConfig out;
  out.method = "compressed-tensors";
  out.least_capability = 70;
  if (!config.has("config_groups") || !config.json()["config_groups"].is_object() ||
      config.json()["config_groups"].empty())
    throw_user_error("{}: key \"config_groups\" must be an object with at least one group", config.where());
  bool first = true;
  for (const auto& [name, group] : config.json()["config_groups"].items()) {
    const std::string where = fmt::format("{}: config_groups.{}", config.where(), name);
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object())
      throw_user_error("{}: key \"weights\" must be an object", where);
    const Json none;
    const Json& activations = group.contains("input_activations") ? group["input_activations"] : none;
    const WeightFormat scheme =
        compressed_scheme(ConfigReader(group["weights"], where + ".weights"), activations);
    if (!first && !(scheme == out.linear))
      throw_user_error(
          "{}: groups with different schemes are not supported; tpsim reads one scheme for all modules",
          where);
    set_all(out, scheme);
    first = false;
  }
  out.pattern = Pattern::kEqualOrRegex;
  for (std::string& name : names(config, {"ignore"})) {
    if (name.starts_with("re:"))
      out.ignored_expressions.push_back(expression(name.substr(3), config.where()));
    else
      out.ignored.push_back(std::move(name));
  }
  if (config.has("kv_cache_scheme") && config.json()["kv_cache_scheme"].is_object())
    out.kv_cache_fp8 = config.json()["kv_cache_scheme"].value("num_bits", Json()) == Json(8);
  return out;
}

// modelopt_quant.py, of its flat form (config.json) or of the "quantization" object of hf_quant_config.json.
QuantizationConfig read_modelopt(const ConfigReader& config) {
  QuantizationConfig out;
  std::string algorithm = config.text("quant_algo", "");
  const bool fp4 = algorithm.find("FP4") != std::string::npos && algorithm != "MIXED_PRECISION";
  const bool fp8 = algorithm == "FP8";
  if (!fp4 && !fp8)
    throw_user_error("{}: quant_algo {} is not supported; tpsim knows ModelOpt's FP8 and NVFP4",
                     config.where(), in_quotes(algorithm));
  out.method = fp4 ? "modelopt_fp4" : "modelopt_fp8";
  out.least_capability = fp4 ? 100 : 89;
  if (fp4) {
    const std::uint32_t group = config.has("group_size") ? config.number("group_size", 1, 1 << 16) : 16;
    if (group != 16) throw_user_error("{}: key \"group_size\" is {}; NVFP4 has 16", config.where(), group);
    set_all(out, {WeightFormat::Kind::kNvfp4, 1, 16, false, ActivationFormat::kNvfp4});
  } else {
    set_all(out, {WeightFormat::Kind::kFp8, 0, 0, false, ActivationFormat::kFp8});
  }
  out.pattern = Pattern::kWildcard;
  out.ignored = names(config, {"exclude_modules", "ignore"});
  if (config.has("kv_cache_quant_algo")) out.kv_cache_fp8 = config.text("kv_cache_quant_algo", "") == "FP8";
  if (config.has("kv_cache_scheme")) {
    const Json& scheme = config.json()["kv_cache_scheme"];
    out.kv_cache_fp8 = scheme.is_object() ? scheme.value("num_bits", Json()) == Json(8) &&
                                                scheme.value("type", Json()) == Json("float")
                                          : scheme == Json("FP8");
  }
  return out;
}

// w8a8_int8.py and w8a8_fp8.py: one scale an output, one a token.
QuantizationConfig read_w8a8(const ConfigReader& config, const std::string& method) {
  QuantizationConfig out;
  out.method = method;
  const bool fp8 = method == "w8a8_fp8";
  out.least_capability = fp8 ? 89 : 75;
  set_all(out, {fp8 ? WeightFormat::Kind::kFp8 : WeightFormat::Kind::kInt8, 1, 0, false,
                fp8 ? ActivationFormat::kFp8 : ActivationFormat::kInt8});
  out.pattern = Pattern::kEqualOrRegex;
  out.ignored = names(config, {"ignore"});
  return out;
}

}  // namespace

QuantizationConfig read_quantization(const nlohmann::json& json, const std::string& where) {
  const ConfigReader whole(json, where);
  const char* key = whole.has("quantization_config") ? "quantization_config" : "compression_config";
  if (!whole.has(key)) return {};
  if (!json[key].is_object()) throw_user_error("{}: key \"{}\" must be an object", where, key);
  const ConfigReader config(json[key], fmt::format("{}: {}", where, key));
  std::string method = config.text("quant_method", "");
  if (method.empty() || method.starts_with("modelopt")) return read_modelopt(config);
  if (method == "fp8") {
    QuantizationConfig out = read_fp8(config);
    // DeepSeek V4: experts in mxfp4, in the config itself or beside it (Transformers).
    if (whole.text("expert_dtype", config.text("expert_dtype", "")) == "fp4")
      out.experts = {WeightFormat::Kind::kMxfp4, 1, 32, false, ActivationFormat::kFp8};
    return out;
  }
  if (method == "mxfp8") return read_mxfp8(config);
  if (method == "gptq") return read_gptq(config);
  if (method == "awq") return read_awq(config);
  if (method == "mxfp4") return read_mxfp4();
  // Kimi K3's experts, which SGLang takes as mxfp4's.
  if (config.text("format", "") == "mxfp4-pack-quantized") return read_mxfp4();
  if (method == "compressed-tensors" || method == "compressed_tensors") return read_compressed(config);
  if (method == "w8a8_fp8" || method == "w8a8_int8") return read_w8a8(config, method);
  throw_user_error(
      "{}: key \"quant_method\" is {}; tpsim knows fp8, w8a8_fp8, w8a8_int8, awq, gptq, mxfp4, mxfp8, "
      "compressed-tensors and modelopt",
      config.where(), in_quotes(method));
}

QuantizationConfig read_hf_quant_config(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("quantization") || !json["quantization"].is_object())
    throw_user_error("{}: key \"quantization\" must be an object", where);
  return read_modelopt(ConfigReader(json["quantization"], where + ": quantization"));
}

}  // namespace tpsim::rank
