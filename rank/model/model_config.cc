#include "rank/model/model_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "proto/error.h"
#include "rank/catalogue/catalogue.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;

constexpr std::uintmax_t kMaxConfigBytes = 1 << 20;
constexpr std::uint32_t kMaxLayers = 1000;

constexpr std::array<const char*, 6> kSupported = {"LlamaForCausalLM",    "MistralForCausalLM",
                                                   "Qwen2ForCausalLM",    "Qwen3ForCausalLM",
                                                   "Qwen3MoeForCausalLM", "MixtralForCausalLM"};

std::string supported() {
  std::string names;
  for (const char* name : kSupported) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  std::uint32_t number(const char* key, std::uint32_t least = 1, std::uint32_t most = 1U << 28) const {
    if (!has(key)) throw_user_error("{}: key \"{}\" is missing; it must be a whole number", where_, key);
    return check(json_.at(key), key, least, most);
  }
  std::uint32_t number_or(const char* key, std::uint32_t otherwise, std::uint32_t least = 1) const {
    return has(key) ? number(key, least) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) throw_user_error("{}: key \"{}\" must be true or false", where_, key);
    return json_.at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_string()) throw_user_error("{}: key \"{}\" must be a string", where_, key);
    return json_.at(key).get<std::string>();
  }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  std::uint32_t check(const Json& value, const char* key, std::uint32_t least, std::uint32_t most) const {
    if (!value.is_number_integer() || value.get<double>() < least || value.get<double>() > most) {
      std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
      if (shown.size() > 40) shown = shown.substr(0, 40) + "…";
      throw_user_error("{}: key \"{}\" is {}; it must be a whole number from {} to {}", where_, key, shown,
                       least, most);
    }
    return value.get<std::uint32_t>();
  }
  const Json& json_;
  std::string where_;
};

std::string architecture_of(const ConfigReader& config) {
  const Json& json = config.json();
  if (!json.contains("architectures") || !json["architectures"].is_array() || json["architectures"].empty() ||
      !json["architectures"][0].is_string()) {
    throw_user_error("{}: key \"architectures\" is missing; it must name one of {}", config.where(),
                     supported());
  }
  return json["architectures"][0].get<std::string>();
}

std::uint32_t weight_bytes_of(const ConfigReader& config) {
  const std::string dtype = config.text("dtype", config.text("torch_dtype", "bfloat16"));
  if (dtype == "bfloat16" || dtype == "float16" || dtype == "float32") return 2;
  throw_user_error("{}: dtype \"{}\" is not supported; use bfloat16, float16 or float32", config.where(),
                   dtype);
}

// Which layers slide: Mistral all of them; Qwen by use_sliding_window and max_window_layers, or layer_types.
std::vector<AttentionKind> attention_kinds(const ConfigReader& config, const ModelConfig& model) {
  std::uint32_t sliding = 0;
  const std::uint32_t window = config.number_or("sliding_window", 0, 0);
  const bool qwen = model.architecture.starts_with("Qwen");
  if (config.json().contains("layer_types") && config.json()["layer_types"].is_array()) {
    const Json& types = config.json()["layer_types"];
    if (types.size() != model.num_layers) {
      throw_user_error("{}: key \"layer_types\" has {} entries, but num_hidden_layers is {}", config.where(),
                       types.size(), model.num_layers);
    }
    sliding = static_cast<std::uint32_t>(std::count(types.begin(), types.end(), "sliding_attention"));
  } else if (window > 0 && qwen) {
    if (config.flag("use_sliding_window", false)) {
      sliding = model.num_layers -
                std::min(model.num_layers, config.number_or("max_window_layers", model.num_layers, 0));
    }
  } else if (window > 0) {
    sliding = model.num_layers;
  }
  if (sliding > 0 && window == 0) {
    throw_user_error("{}: layers use sliding_attention, but key \"sliding_window\" is missing",
                     config.where());
  }
  std::vector<AttentionKind> kinds;
  if (sliding < model.num_layers) kinds.push_back({model.num_layers - sliding, 0});
  if (sliding > 0) kinds.push_back({sliding, window});
  return kinds;
}

// Rope scaling that lengthens the context: SGLang multiplies by the factor unless the config says what it was
// before (then max_position_embeddings is already the longer one) or the type is llama3.
// Transformers 5 calls rope_scaling rope_parameters.
std::uint32_t context_length_of(const ConfigReader& config) {
  constexpr std::uint32_t kMost = 1U << 28;
  const std::uint32_t length = config.number("max_position_embeddings", 1, kMost);
  const char* key = config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!config.has(key)) return length;
  const Json& rope = config.json()[key];
  if (!rope.is_object()) throw_user_error("{}: key \"{}\" must be an object", config.where(), key);
  if (!rope.contains("factor") || rope["factor"].is_null()) return length;
  if (!rope["factor"].is_number() || !(rope["factor"].get<double>() >= 1) ||
      rope["factor"].get<double>() > 1024) {
    throw_user_error("{}: key \"{}.factor\" must be a number from 1 to 1024", config.where(), key);
  }
  const char* type = rope.contains("rope_type") ? "rope_type" : "type";
  const bool llama3 = rope.contains(type) && rope[type] == "llama3";
  if (llama3 || rope.contains("original_max_position_embeddings")) return length;
  return static_cast<std::uint32_t>(
      std::min<double>(kMost, static_cast<double>(length) * rope["factor"].get<double>()));
}

// Layers of a Qwen3-MoE model that have experts: each decoder_sparse_step-th, but for mlp_only_layers.
std::uint32_t sparse_layers(const ConfigReader& config, std::uint32_t num_layers) {
  const std::uint32_t step = config.number_or("decoder_sparse_step", 1);
  std::vector<bool> dense(num_layers, false);
  if (config.has("mlp_only_layers")) {
    const Json& layers = config.json()["mlp_only_layers"];
    if (!layers.is_array())
      throw_user_error("{}: key \"mlp_only_layers\" must be a list of layers", config.where());
    for (const Json& layer : layers) {
      if (!layer.is_number_integer() || layer.get<double>() < 0 || layer.get<double>() >= num_layers) {
        throw_user_error("{}: key \"mlp_only_layers\" must hold whole numbers from 0 to {}", config.where(),
                         num_layers - 1);
      }
      dense[layer.get<std::size_t>()] = true;
    }
  }
  std::uint32_t sparse = 0;
  for (std::uint32_t i = 0; i < num_layers; ++i) sparse += !dense[i] && (i + 1) % step == 0 ? 1 : 0;
  return sparse;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "meta-llama/Llama-3.1-70B-Instruct" → "llama-3.1-70b". Only the publishers' own names, so that a path that
// does not exist is not taken for a model of the catalogue. Of Mistral 7B, v0.3 is in the catalogue.
std::string catalogue_key(const std::string& name) {
  std::string key = lower(name);
  for (const char* prefix : {"meta-llama/", "qwen/", "mistralai/", "meta-"}) {
    if (key.starts_with(prefix)) key.erase(0, std::string(prefix).size());
  }
  for (const char* part : {"-instruct", "-base", "-v0.3"}) {
    const std::size_t at = key.find(part);
    if (at != std::string::npos) key.erase(at, std::string(part).size());
  }
  return key;
}

// Levenshtein's distance.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  const std::string end = name.substr(name.find_last_of('/') + 1).substr(0, 200);
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return distance(end, a) < distance(end, b);
  });
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    throw_user_error("{}: not a JSON object; it must be a Hugging Face config.json", where);
  }
  const ConfigReader config(json, where);
  ModelConfig model;
  model.architecture = architecture_of(config);
  if (std::find(kSupported.begin(), kSupported.end(), model.architecture) == kSupported.end()) {
    throw_user_error("{}: architecture {} is not supported; supported are {}", where, model.architecture,
                     supported());
  }
  model.hidden_size = config.number("hidden_size", 1, 1U << 20);
  model.num_layers = config.number("num_hidden_layers", 1, kMaxLayers);
  model.num_attention_heads = config.number("num_attention_heads", 1, 1U << 14);
  model.num_key_value_heads = config.number_or("num_key_value_heads", model.num_attention_heads);
  model.vocab_size = config.number("vocab_size", 1, 1U << 26);
  model.context_length = context_length_of(config);
  if (!config.has("head_dim") && model.hidden_size % model.num_attention_heads != 0) {
    throw_user_error(
        "{}: num_attention_heads {} does not divide hidden_size {}, and key \"head_dim\" is missing", where,
        model.num_attention_heads, model.hidden_size);
  }
  model.head_dim = config.number_or("head_dim", model.hidden_size / model.num_attention_heads);
  model.intermediate_size = config.number("intermediate_size", 1, 1U << 24);
  model.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  model.qkv_bias = model.architecture == "Qwen2ForCausalLM" || config.flag("attention_bias", false);
  model.qk_norm = model.architecture.starts_with("Qwen3");
  model.weight_bytes = weight_bytes_of(config);
  model.dtype = config.text("dtype", config.text("torch_dtype", "bfloat16"));
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    throw_user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where,
                     model.num_attention_heads, model.num_key_value_heads);
  }
  if (model.head_dim == 0 || model.head_dim > 1024) {
    throw_user_error("{}: key \"head_dim\" is {}; it must be a whole number from 1 to 1024", where,
                     model.head_dim);
  }
  if (model.architecture == "MixtralForCausalLM") {
    model.moe = {config.number("num_local_experts", 1, 4096), config.number("num_experts_per_tok", 1, 4096),
                 model.intermediate_size, model.num_layers};
  } else if (model.architecture == "Qwen3MoeForCausalLM") {
    model.moe = {config.number("num_experts", 1, 4096), config.number("num_experts_per_tok", 1, 4096),
                 config.number("moe_intermediate_size", 1, 1U << 24),
                 sparse_layers(config, model.num_layers)};
    if (model.moe.num_layers == 0) model.moe = {};  // dense after all
  }
  if (model.moe.top_k > model.moe.num_experts) {
    throw_user_error("{}: num_experts_per_tok {} is more than the {} experts", where, model.moe.top_k,
                     model.moe.num_experts);
  }
  model.attention = attention_kinds(config, model);
  model.name = config.text("_name_or_path", where);
  return model;
}

std::vector<std::string> model_catalogue() { return catalogue::names("models"); }

ModelConfig load_model_config(const std::string& model_path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path file = model_path;
  const bool folder_given = fs::is_directory(file, error);
  if (folder_given) file /= "config.json";
  if (!fs::is_regular_file(file, error)) {
    const std::string key = catalogue_key(model_path);
    if (const auto text = catalogue::find("models", key)) {
      ModelConfig model = parse_model_config(std::string(*text), key);
      model.name = key;
      return model;
    }
    if (folder_given) throw_user_error("--model-path {}: the folder has no config.json", model_path);
    const std::vector<std::string> known = model_catalogue();
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    throw_user_error(
        "--model-path {}: neither a known model nor a folder with a config.json; did you mean {}? Known are "
        "{}",
        model_path, nearest(key, known), names);
  }
  if (fs::file_size(file, error) > kMaxConfigBytes) {
    throw_user_error("{}: larger than 1 MiB; that is not a model's config.json", file.string());
  }
  std::ifstream stream(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream && !stream.eof()) throw_user_error("{}: cannot be read", file.string());
  ModelConfig model = parse_model_config(text, file.string());
  fs::path folder = fs::weakly_canonical(file, error).parent_path();
  model.name = folder.filename().string();
  return model;
}

}  // namespace tpsim::rank
