// rope_scaling and rope_theta (Transformers 4), rope_parameters (5), per kind of layer where a model has two.
#include <cmath>
#include <optional>
#include <string>

#include "rank/config/config_parts.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kWidestHead = 4096;

RopeType type_of(const ConfigReader& config, const ConfigReader& rope) {
  const std::string name = rope.text("rope_type", rope.text("type", "default"));
  // Text turns by its position in all three sections of Qwen-VL's rotation.
  if (name == "default" || name == "mrope") return RopeType::kDefault;
  if (name == "linear") return RopeType::kLinear;
  if (name == "dynamic") return RopeType::kDynamic;
  if (name == "llama3") return RopeType::kLlama3;
  if (name == "yarn") return RopeType::kYarn;
  throw_user_error("{}: rope type \"{}\" is not supported; use default, linear, dynamic, llama3 or yarn",
                   config.where(), name.substr(0, 40));
}

void read_mrope(const ConfigReader& rope, const RopeDefaults& defaults, RopeConfig& out) {
  out.mrope_section = defaults.mrope_section;
  out.mrope_interleaved = rope.flag("mrope_interleaved", false);
  if (!rope.has("mrope_section")) return;
  const Json& list = rope.json()["mrope_section"];
  if (!list.is_array() || list.size() != out.mrope_section.size())
    throw_user_error("{}: \"mrope_section\" must be a list of three numbers", rope.where());
  for (std::size_t i = 0; i < out.mrope_section.size(); ++i) {
    if (!list[i].is_number_unsigned() || list[i].get<double>() > kWidestHead)
      throw_user_error("{}: \"mrope_section\" must hold whole numbers from 0 to {}", rope.where(),
                       kWidestHead);
    out.mrope_section[i] = list[i].get<std::uint32_t>();
  }
}

// `rope`: the object that describes one rotation; it may be empty.
RopeConfig read_one(const ConfigReader& config, const Json& object, double theta,
                    const RopeDefaults& defaults) {
  const std::optional<double>& partial = defaults.partial_rotary_factor;
  constexpr std::uint32_t kMostTokens = 1U << 28;
  if (!object.is_object()) throw_user_error("{}: rope parameters must be an object", config.where());
  const ConfigReader rope(object, config.where() + ": rope parameters");
  RopeConfig out;
  out.type = type_of(config, rope);
  out.theta = rope.real("rope_theta", theta, 1, 1e12);
  out.partial_rotary_factor =
      rope.real("partial_rotary_factor",
                partial ? config.real("partial_rotary_factor", *partial, 1e-3, 1) : 1.0, 1e-3, 1);
  if (!partial && out.partial_rotary_factor != 1) {
    throw_user_error("{}: a partial_rotary_factor other than 1 is not supported for this architecture",
                     config.where());
  }
  read_mrope(rope, defaults, out);
  if (out.type == RopeType::kDefault) return out;
  out.factor = rope.real("factor", 1, 1e-3, 1024);
  const std::uint32_t top = config.number_or("original_max_position_embeddings", 0);
  out.original_max_position_embeddings = rope.has("original_max_position_embeddings")
                                             ? rope.number("original_max_position_embeddings", 1, kMostTokens)
                                             : top;
  // DeepSeek's configs may leave the factor out: it follows from the two lengths.
  if (out.type == RopeType::kYarn && !rope.has("factor") && out.original_max_position_embeddings > 0) {
    out.factor = static_cast<double>(config.number("max_position_embeddings", 1, kMostTokens)) /
                 out.original_max_position_embeddings;
  }
  out.low_freq_factor = rope.real("low_freq_factor", 1, 1e-3, 1e6);
  out.high_freq_factor = rope.real("high_freq_factor", 4, 1e-3, 1e6);
  out.beta_fast = rope.real("beta_fast", 32, 1e-3, 1e6);
  out.beta_slow = rope.real("beta_slow", 1, 1e-3, 1e6);
  out.mscale = rope.real("mscale", 0, 0, 100);
  out.mscale_all_dim = rope.real("mscale_all_dim", 0, 0, 100);
  out.attention_factor = rope.real("attention_factor", 0, 0, 100);
  out.truncate = rope.flag("truncate", true);
  if (out.type == RopeType::kLlama3) {
    if (out.original_max_position_embeddings == 0)
      throw_user_error("{}: rope type llama3 needs \"original_max_position_embeddings\"", config.where());
    // Alike (Llama 4 Scout): nothing lies between the frequencies that are slowed and those that are not.
    if (out.high_freq_factor < out.low_freq_factor)
      throw_user_error("{}: rope's high_freq_factor must not be less than its low_freq_factor",
                       config.where());
  }
  return out;
}

}  // namespace

void read_rope(const ConfigReader& config, ModelConfig& model, const RopeDefaults& defaults) {
  const double theta = config.real("rope_theta", defaults.theta, 1, 1e12);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json empty = Json::object();
  const Json& all = config.has(key) ? config.json()[key] : empty;
  model.ropes.clear();
  const bool nested = all.is_object() && all.contains("full_attention");
  model.ropes.push_back(read_one(config, nested ? all["full_attention"] : all, theta, defaults));
  if (nested && all.contains("sliding_attention")) {
    model.ropes.push_back(read_one(config, all["sliding_attention"], theta, defaults));
  } else if (defaults.local_theta) {
    RopeConfig of_windows;
    of_windows.theta = config.real("rope_local_base_freq", *defaults.local_theta, 1, 1e12);
    model.ropes.push_back(of_windows);
  }
  for (RopeConfig& rope : model.ropes) {
    const auto [time, row, column] = rope.mrope_section;
    if (!rope.has_mrope() || time + row + column == model.rope_dim(rope) / 2) continue;
    const bool said = rope.mrope_section != defaults.mrope_section;
    rope.mrope_section = {};  // heads of other sizes than the published ones: text alone
    if (said)
      throw_user_error("{}: mrope_section has {} pairs, and heads rotate {}", config.where(),
                       time + row + column, model.rope_dim(rope) / 2);
  }
  for (LayerConfig& layer : model.layers) {
    if (layer.rope == LayerConfig::kNoRope) continue;
    layer.rope = model.ropes.size() > 1 && layer.sliding_window > 0 ? 1 : 0;
  }
}

void read_mla_rope(const ConfigReader& config, ModelConfig& model) {
  read_rope(config, model);
  RopeConfig& rope = model.ropes.front();
  rope.interleaved = config.flag("rope_interleave", true);
  // DeepSeek lengthens the context in the attention's scale, too.
  if (rope.type != RopeType::kDefault && rope.mscale_all_dim > 0 && rope.factor > 1) {
    const double mscale = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
    model.attention_scale *= mscale * mscale;
  }
}

}  // namespace tpsim::rank
