#include "rank/config/quantization_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::rank {
namespace {

using Pattern = QuantizationConfig::Pattern;

// Whether `ignored` stands in `module` as whole components.
bool path_match(std::string_view ignored, std::string_view module) {
  for (std::size_t at = module.find(ignored); at != std::string_view::npos;
       at = module.find(ignored, at + 1)) {
    const std::size_t end = at + ignored.size();
    if ((at == 0 || module[at - 1] == '.') && (end == module.size() || module[end] == '.')) return true;
  }
  return false;
}

// `text` equals `pattern`, in which * stands for anything.
bool glob_match(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t from = star; from <= text.size(); ++from) {
    if (glob_match(rest, text.substr(from))) return true;
    if (rest.empty()) return true;
  }
  return false;
}

std::string_view last_component(std::string_view module) {
  return module.substr(module.find_last_of('.') + 1);
}

bool wildcard_match(std::string_view pattern, std::string_view module) {
  if (path_match(pattern, module) || glob_match(pattern, module)) return true;
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t dot = std::min(module.find('.', begin), module.size());
    if (glob_match(pattern, module.substr(begin, dot - begin))) return true;
    begin = dot + 1;
  }
  // A part of a fused latent projection (fused_qkv_a_proj_with_mqa) stands for the whole.
  static constexpr std::array<std::string_view, 4> kFused = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
                                                             "kv_b_proj"};
  const std::string_view tail = last_component(pattern);
  return std::find(kFused.begin(), kFused.end(), tail) != kFused.end() &&
         last_component(module).find(tail) != std::string_view::npos;
}

bool ignores(const QuantizationConfig& config, std::string_view module) {
  const std::string path(module);
  for (const std::regex& expression : config.ignored_expressions) {
    if (std::regex_search(path, expression, std::regex_constants::match_continuous)) return true;
  }
  return std::ranges::any_of(config.ignored, [&](const std::string& entry) {
    switch (config.pattern) {
      case Pattern::kPath:
        // An entry for one expert is one for all of them.
        return path_match(entry, module) ||
               (last_component(module) == "experts" && entry.find("experts") != std::string::npos &&
                entry.find(path) != std::string::npos);
      case Pattern::kSubstring:
        return path.find(entry) != std::string::npos;
      case Pattern::kEqualOrRegex:
        return to_lower(path).find(to_lower(entry)) != std::string::npos;
      case Pattern::kWildcard:
        return wildcard_match(entry, module);
    }
    return false;
  });
}

// The modules of a checkpoint that SGLang puts together under the name of `module`; empty: none.
std::vector<std::string> parts_of(std::string_view module) {
  using Parts = std::vector<std::string_view>;
  static const std::array<std::pair<std::string_view, Parts>, 4> kFused = {{
      {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"gate_up_proj", {"gate_proj", "up_proj"}},
      {"fused_qkv_a_proj_with_mqa", {"q_a_proj", "kv_a_proj_with_mqa"}},
      {"experts", {"experts.0.gate_proj", "experts.0.up_proj", "experts.0.down_proj"}},
  }};
  const std::string_view name = last_component(module);
  std::vector<std::string> parts;
  for (const auto& [fused, names] : kFused) {
    if (fused != name) continue;
    const std::string begin(module.substr(0, module.size() - name.size()));
    for (const std::string_view part : names) parts.push_back(begin + std::string(part));
  }
  return parts;
}

// Built without a quantisation by SGLang's models, whatever the method.
bool never_quantized(std::string_view module) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "gate", "router", "shared_expert_gate", "embed_tokens", "weights_proj", "conv1d"};
  return std::find(kNames.begin(), kNames.end(), last_component(module)) != kNames.end();
}

// What --quantization may be: QUANTIZATION_CHOICES of SGLang 0.5.12 and 0.5.23.
struct Choice {
  std::string_view name;
  std::string_view needs;    // what a checkpoint must be, where it is not the method itself; "online": 16 bit
  std::string_view refusal;  // why tpsim does not know it; empty: it does
};
constexpr std::string_view kAmd = "it is a method of AMD GPUs";
constexpr std::string_view kNpu = "it is a method of Ascend NPUs";
constexpr std::string_view kApple = "it is a method of Apple GPUs";
constexpr std::string_view kUnmeasured = "its kernels have not been measured";
constexpr std::array<Choice, 33> kChoices = {{
    {"awq", "", ""},
    {"awq_marlin", "awq", ""},
    {"gptq", "", ""},
    {"gptq_marlin", "gptq", ""},
    {"fp8", "online", ""},
    {"w8a8_fp8", "online", ""},
    {"w8a8_int8", "", ""},
    {"compressed-tensors", "", ""},
    {"mxfp4", "", ""},
    {"modelopt", "", ""},
    {"modelopt_fp8", "", ""},
    {"modelopt_fp4", "", ""},
    {"unquant", "online", ""},
    {"mxfp8", "online", ""},
    {"marlin", "", "the checkpoint format of that name is not read"},
    {"bitsandbytes", "", kUnmeasured},
    {"gguf", "", "GGUF files are not read"},
    {"nvfp4_online", "", kUnmeasured},
    {"modelopt_mixed", "", kUnmeasured},
    {"petit_nvfp4", "", kAmd},
    {"moe_wna16", "", kUnmeasured},
    {"qoq", "", kUnmeasured},
    {"w4afp8", "", kUnmeasured},
    {"auto-round", "", kUnmeasured},
    {"auto-round-int8", "", kUnmeasured},
    {"modelslim", "", kNpu},
    {"mxfp_w4a8", "", kNpu},
    {"quark", "", kAmd},
    {"quark_int4fp8_moe", "", kAmd},
    {"quark_mxfp4", "", kAmd},
    {"humming", "", kUnmeasured},
    {"mlx_q4", "", kApple},
    {"mlx_q8", "", kApple},
}};

std::string known_choices() {
  std::string names;
  for (const Choice& choice : kChoices) {
    if (choice.refusal.empty()) names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  return names;
}

const Choice& choice_of(const std::string& flag) {
  std::vector<std::string_view> names;
  for (const Choice& choice : kChoices) {
    if (choice.name == flag) return choice;
    names.push_back(choice.name);
  }
  throw_user_error("--quantization {} is not a method{} Use {}", in_quotes(flag),
                   nearest(flag, names).empty() ? "." : did_you_mean(flag, names), known_choices());
}

// 16-bit weights that are quantised while they are loaded: one scale for each output, one for each token of
// the input (fp8.py, Fp8LinearMethod and w8a8_fp8.py: sgl_kernel's product takes no other). Experts under
// fp8 have one scale a matrix (Fp8MoEMethod).
QuantizationConfig online(const std::string& method) {
  QuantizationConfig config;
  config.method = method;
  config.online = true;
  config.linear = {WeightFormat::Kind::kFp8, 1, 0, false, ActivationFormat::kFp8};
  config.experts = config.linear;
  if (method == "fp8") config.experts.block_n = 0;
  if (method == "mxfp8") config.linear.block_k = config.experts.block_k = 32;
  config.least_capability = method == "fp8" ? 80 : method == "mxfp8" ? 100 : 89;
  return config;
}

// _verify_quantization's compatible_quantization_methods, and the overrides by which Marlin's kernels take
// over a checkpoint.
bool compatible(const std::string& flag, const QuantizationConfig& checkpoint) {
  const std::string& method = checkpoint.method;
  if (flag == method) return true;
  if (flag == "gptq" || flag == "gptq_marlin") return method == "gptq_marlin";
  if (flag == "awq" || flag == "awq_marlin") return method == "awq_marlin";
  if (flag == "modelopt") return method == "modelopt_fp8" || method == "modelopt_fp4";
  const WeightFormat::Kind kind = checkpoint.linear.kind;
  if (method != "compressed-tensors") return false;
  return (flag == "w8a8_fp8" && kind == WeightFormat::Kind::kFp8) ||
         (flag == "w8a8_int8" && kind == WeightFormat::Kind::kInt8);
}

}  // namespace

WeightFormat QuantizationConfig::of(std::string_view module) const {
  if (!quantized() || never_quantized(module)) return {};
  const std::string_view name = last_component(module);
  if (name == "lm_head") return head;
  const WeightFormat& scheme = name == "experts" ? experts : linear;
  if (!scheme.quantized() || ignores(*this, module)) return {};
  const std::vector<std::string> parts = parts_of(module);
  const bool skipped =
      std::ranges::any_of(parts, [this](const std::string& part) { return ignores(*this, part); });
  return skipped ? WeightFormat{} : scheme;
}

QuantizationConfig resolve_quantization(const QuantizationConfig& checkpoint, const std::string& flag) {
  const std::string method = to_lower(flag);
  if (method.empty()) return checkpoint;
  const Choice& choice = choice_of(method);
  if (!choice.refusal.empty()) {
    throw_user_error("--quantization {}: {}, so tpsim has no price for it; it knows {}", method,
                     choice.refusal, known_choices());
  }
  if (method == "unquant") return checkpoint;
  if (!checkpoint.quantized()) {
    if (choice.needs == "online") return online(method);
    throw_user_error(
        "--quantization {}: the weights are 16 bit, and only fp8, w8a8_fp8 and mxfp8 quantise them while "
        "loading; use one of these, or a checkpoint whose config.json declares {}",
        method, choice.needs.empty() ? choice.name : choice.needs);
  }
  if (!compatible(method, checkpoint)) {
    throw_user_error(
        "--quantization {}: the checkpoint's quantization_config says {}, and SGLang refuses the two "
        "together; leave the flag out",
        method, checkpoint.method);
  }
  QuantizationConfig config = checkpoint;
  if (method != "modelopt") config.method = method;
  return config;
}

void check_capability(const QuantizationConfig& config, const proto::HardwareProfile& hardware) {
  if (!config.quantized()) return;
  static constexpr std::array<std::pair<std::string_view, std::uint32_t>, 6> kCapabilities = {
      {{"turing", 75},
       {"ampere", 80},
       {"ada", 89},
       {"hopper", 90},
       {"blackwell", 100},
       {"blackwell_sm120", 120}}};
  const bool nvfp4 = config.linear.kind == WeightFormat::Kind::kNvfp4;
  for (const auto& [architecture, capability] : kCapabilities) {
    if (hardware.architecture() != architecture) continue;
    if (capability >= config.least_capability && !(nvfp4 && hardware.dense_flops_fp4() == 0)) return;
    throw_user_error(
        "--quantization {}: its kernels need a GPU of compute capability {}.{}, and {} has {}.{}; use "
        "another --hardware or other weights",
        config.method, std::max(config.least_capability, nvfp4 ? 100U : 0U) / 10,
        config.least_capability % 10, hardware.name(), capability / 10, capability % 10);
  }
}

}  // namespace tpsim::rank
