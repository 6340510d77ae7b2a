// What model_config.h declares: apart from it, so that families know what a model is and not what reads it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/catalogue/catalogue.h"
#include "rank/config/catalogue_models.h"
#include "rank/config/config_parts.h"
#include "rank/config/families.h"
#include "rank/config/pipeline_names.h"

namespace tpsim::rank {
namespace {

constexpr std::uintmax_t kMaxConfigBytes = 1 << 20;
constexpr std::uint32_t kMaxLayers = 1000;

std::string supported() {
  std::string names;
  for (const ModelFamily* family : model_families()) {
    for (const Architecture& row : family->architectures)
      names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

std::string architecture_of(const ConfigReader& config) {
  const Json& json = config.json();
  if (!json.contains("architectures") || !json["architectures"].is_array() || json["architectures"].empty() ||
      !json["architectures"][0].is_string()) {
    throw_user_error("{}: key \"architectures\" is missing; it must name one of {}", config.where(),
                     supported());
  }
  return json["architectures"][0].get<std::string>();
}

// InternVL names the architecture of its text model there; Transformers may only name its kind.
std::string inner_architecture(const ConfigReader& text) {
  const std::string kind = text.text("model_type", "");
  if (text.has("architectures")) return architecture_of(text);
  for (const ModelFamily* family : model_families()) {
    for (const Architecture& row : family->architectures)
      if (!kind.empty() && kind == row.model_type) return std::string(row.name);
  }
  return architecture_of(text);  // says what is missing
}

std::uint32_t weight_bytes_of(const ConfigReader& config) {
  const std::string dtype = config.text("dtype", config.text("torch_dtype", "bfloat16"));
  if (dtype == "bfloat16" || dtype == "float16" || dtype == "float32") return 2;
  throw_user_error("{}: dtype \"{}\" is not supported; use bfloat16, float16 or float32", config.where(),
                   dtype);
}

// Rope scaling that lengthens the context: SGLang multiplies by the factor unless the config says what it was
// before (then max_position_embeddings is already the longer one) or the type is llama3.
// Transformers 5 calls rope_scaling rope_parameters.
std::uint32_t context_length_of(const ConfigReader& config) {
  constexpr std::uint32_t kMost = 1U << 28;
  const std::uint32_t length = config.number("max_position_embeddings", 1, kMost);
  const char* key = config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!config.has(key)) return length;
  const Json& all = config.json()[key];
  // Models with two rotations name them by kind of layer.
  const Json& rope = all.is_object() && all.contains("full_attention") ? all["full_attention"] : all;
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

std::string read_config(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::file_size(file, error) > kMaxConfigBytes)
    throw_user_error("{}: larger than 1 MiB; that is not a model's {}", file.string(),
                     file.filename().string());
  std::ifstream stream(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream && !stream.eof()) throw_user_error("{}: cannot be read", file.string());
  return text;
}

// What every family has.
void read_common(const ConfigReader& config, ModelConfig& model) {
  model.hidden_size = config.number("hidden_size", 1, 1U << 20);
  model.num_layers = config.number("num_hidden_layers", 1, kMaxLayers);
  model.num_attention_heads = config.number("num_attention_heads", 1, 1U << 14);
  model.num_key_value_heads = config.number_or("num_key_value_heads", model.num_attention_heads);
  model.vocab_size = config.number("vocab_size", 1, 1U << 26);
  model.max_position_embeddings = config.number("max_position_embeddings", 1, 1U << 28);
  model.num_nextn_predict_layers = config.number_or("num_nextn_predict_layers", 1, 0);
  model.context_length = context_length_of(config);
  // Latents bring dimensions of their own (read_mla()).
  if (!config.has("head_dim") && !config.json().contains("kv_lora_rank") &&
      model.hidden_size % model.num_attention_heads != 0) {
    throw_user_error(
        "{}: num_attention_heads {} does not divide hidden_size {}, and key \"head_dim\" is missing",
        config.where(), model.num_attention_heads, model.hidden_size);
  }
  model.head_dim = config.number_or("head_dim", model.hidden_size / model.num_attention_heads);
  // Models of experts only may not say it.
  const bool only_experts = !config.has("intermediate_size") && config.has("moe_intermediate_size");
  model.intermediate_size =
      config.number(only_experts ? "moe_intermediate_size" : "intermediate_size", 1, 1U << 24);
  model.weight_bytes = weight_bytes_of(config);
  model.dtype = config.text("dtype", config.text("torch_dtype", "bfloat16"));
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    throw_user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", config.where(),
                     model.num_attention_heads, model.num_key_value_heads);
  }
  if (model.head_dim == 0 || model.head_dim > 1024) {
    throw_user_error("{}: key \"head_dim\" is {}; it must be a whole number from 1 to 1024", config.where(),
                     model.head_dim);
  }
  model.attention_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  model.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-6, 0, 1);
}

// Keys that say what a layer is made of. A family that does not ask for one would describe another model,
// with sizes that look right: experts as one dense MLP, latents as plain heads.
constexpr std::string_view kExperts[] = {"n_routed_experts", "num_experts", "num_local_experts",
                                         "num_experts_per_tok", "moe_intermediate_size"};
constexpr std::string_view kStructure[] = {
    "n_shared_experts",
    "num_shared_experts",
    "shared_expert_intermediate_size",
    "kv_lora_rank",
    "q_lora_rank",
    "sliding_window",
    "attention_chunk_size",
    "index_topk",
    "sparse_attention_config",
    "compress_ratios",
    "hc_mult",
    "linear_attn_config",
    "linear_num_value_heads",
    "full_attention_interval",
    "hybrid_override_pattern",
    "layers_block_type",
    "attn_type_list",
    "mamba_d_state",
    "ssm_state_size",
    "conv_L_cache",
    "num_kv_shared_layers",
    "hidden_size_per_layer_input",
    "global_head_dim",
    "attention_k_eq_v",
    "attn_res_block_size",
    "routed_expert_hidden_size",
    "mla_use_output_gate",
};

bool says_something(const Json& value) {
  if (value.is_number()) return value != 0;
  if (value.is_boolean()) return value.get<bool>();
  return !value.empty();
}

void check_structure(const ConfigReader& config, const ModelConfig& model) {
  const auto check = [&](std::string_view key) {
    const auto found = config.json().find(key);
    if (found == config.json().end() || config.asked(key) || !says_something(*found)) return;
    throw_user_error(
        "{}: key \"{}\" is {}, and nothing of the kind is known of {}: what would be priced is another model",
        config.where(), key, found->dump().substr(0, 40), model.architecture);
  };
  std::ranges::for_each(kStructure, check);
  // Of a model with experts, the others are names that Transformers writes beside the family's own.
  if (model.moe.num_experts == 0) std::ranges::for_each(kExperts, check);
}

bool alike(const AttentionKind& kind, const LayerConfig& layer) {
  return kind.sliding_window == layer.sliding_window && kind.indexer == layer.indexer &&
         kind.attention_chunk == layer.attention_chunk && kind.compress_ratio == layer.compress_ratio &&
         kind.heads == layer.heads;
}

// What follows from the layers, and what no single reader can check.
void finish(const ConfigReader& config, ModelConfig& model) {
  if (model.head_dim % 2 != 0)
    throw_user_error("{}: key \"head_dim\" is {}; it must be even", config.where(), model.head_dim);
  // Kinds of attention layers: full attention first.
  model.attention.clear();
  for (const LayerConfig& layer : model.layers) {
    if (layer.linear) continue;
    const auto same = [&](const AttentionKind& kind) { return alike(kind, layer); };
    if (std::none_of(model.attention.begin(), model.attention.end(), same))
      model.attention.push_back(
          {0, layer.sliding_window, layer.indexer, layer.attention_chunk, layer.compress_ratio, layer.heads});
  }
  const auto reach = [](const AttentionKind& kind) {
    return std::pair(kind.sliding_window, kind.attention_chunk);
  };
  std::sort(model.attention.begin(), model.attention.end(),
            [&](const AttentionKind& a, const AttentionKind& b) { return reach(a) < reach(b); });
  std::uint32_t kv_layers = 0;
  for (LayerConfig& layer : model.layers) {
    if (layer.linear) continue;
    layer.kv_layer = kv_layers++;
    if (layer.indexer) layer.index_layer = model.indexer.num_layers++;
    while (!alike(model.attention[layer.attention], layer)) ++layer.attention;
    ++model.attention[layer.attention].num_layers;
  }
  MoeConfig& moe = model.moe;
  moe.num_layers = model.num_bare_layers = 0;
  for (const LayerConfig& layer : model.layers) {
    moe.num_layers += layer.moe ? 1 : 0;
    model.num_bare_layers += layer.bare ? 1 : 0;
  }
  if (moe.num_layers == 0) moe = {};
  if (moe.top_k > moe.num_experts) {
    throw_user_error("{}: num_experts_per_tok {} is more than the {} experts", config.where(), moe.top_k,
                     moe.num_experts);
  }
}

}  // namespace

FoundArchitecture find_architecture(std::string_view name) {
  for (const ModelFamily* family : model_families()) {
    for (const Architecture& row : family->architectures) {
      if (row.name == name) return {family, &row};
    }
  }
  return {};
}

const VisionArchitecture* find_vision_architecture(std::string_view name) {
  for (const ModelFamily* family : model_families()) {
    for (const VisionArchitecture& row : family->vision) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

ModelConfig parse_model_config(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    throw_user_error("{}: not a JSON object; it must be a Hugging Face config.json", where);
  }
  ModelConfig model;
  const std::string whole = architecture_of(ConfigReader(json, where));
  const VisionArchitecture* const seeing = find_vision_architecture(whole);
  const char* const inside = seeing == nullptr ? VisionArchitecture{}.text_key : seeing->text_key;
  const bool named_inside = json.contains(inside) && json[inside].is_object();
  model.architecture =
      named_inside ? inner_architecture(ConfigReader(json[inside], where + ": " + inside)) : whole;
  const auto [family, row] = find_architecture(model.architecture);
  if (family == nullptr) {
    throw_user_error("{}: architecture {} is not supported; supported are {}", where, model.architecture,
                     supported());
  }
  model.facts = row->facts;
  // Multimodal models describe their text model apart.
  Json flat = json;
  if (json.contains("text_config") && json["text_config"].is_object()) {
    flat = Json::parse(family->text_defaults);
    flat.update(json);
    flat.update(json["text_config"]);
    // The head belongs to the whole model: what its own config says of it counts (Transformers 5 writes
    // both).
    if (json.contains("tie_word_embeddings")) flat["tie_word_embeddings"] = json["tie_word_embeddings"];
  }
  if (named_inside) flat.update(json[inside]);
  for (const auto& [theirs, ours] : family->other_keys) {
    if (!flat.contains(theirs) || flat.contains(ours)) continue;
    flat[ours] = flat[theirs];
    flat.erase(theirs);
  }
  if (json.contains("language_config") && json["language_config"].is_object())  // DeepSeek-OCR
    flat.update(json["language_config"]);
  const ConfigReader config(flat, where);
  read_common(config, model);
  family->read(config, model);
  check_structure(config, model);
  finish(config, model);
  read_eos(config, model);
  model.vision =
      read_vision(json, where, whole, seeing == nullptr ? nullptr : seeing->read, model.hidden_size);
  model.quantization = read_quantization(json, where);
  model.name = config.text("_name_or_path", where);
  return model;
}

std::vector<std::string> model_catalogue() { return catalogue::names("models"); }

namespace {

[[noreturn]] void refuse_unknown(const std::string& model_path, const std::string& key) {
  std::vector<std::string> known = model_catalogue();
  std::ranges::copy(pipeline_catalogue(), std::back_inserter(known));
  const std::vector<std::string> guesses =
      nearest_three(key.substr(key.find_last_of('/') + 1), std::move(known));
  throw_user_error(
      "--model-path {}: neither a known model nor a folder with a config.json{} `tpsim models` lists those "
      "known",
      model_path, guesses.empty() ? ";" : fmt::format(", did you mean {}?", fmt::join(guesses, ", ")));
}

}  // namespace

void check_model_known(const std::string& model_path) {
  std::error_code error;
  const std::string key = catalogue_key(model_path);
  if (!std::filesystem::exists(model_path, error) && !catalogue_config(key)) refuse_unknown(model_path, key);
}

ModelConfig load_model_config(const std::string& model_path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path file = model_path;
  const bool folder_given = fs::is_directory(file, error);
  if (folder_given) file /= "config.json";
  if (!fs::is_regular_file(file, error)) {
    const std::string key = catalogue_key(model_path);
    if (const std::optional<std::string> text = catalogue_config(key)) {
      ModelConfig model = parse_model_config(*text, key);
      model.name = key;
      return model;
    }
    if (folder_given) throw_user_error("--model-path {}: the folder has no config.json", model_path);
    refuse_unknown(model_path, key);
  }
  ModelConfig model = parse_model_config(read_config(file), file.string());
  // ModelOpt's checkpoints may say how they are quantised in a file of their own.
  const auto beside = [&](const char* name, bool must_be_object, const auto& read) {
    const fs::path path = file.parent_path() / name;
    if (!fs::is_regular_file(path, error)) return;
    const Json json = Json::parse(read_config(path), nullptr, /*allow_exceptions=*/false);
    if (must_be_object && !json.is_object()) throw_user_error("{}: not a JSON object", path.string());
    read(json, path.string());
  };
  if (!model.quantization.quantized())
    beside("hf_quant_config.json", false, [&model](const Json& json, const std::string& where) {
      model.quantization = read_hf_quant_config(json, where);
    });
  // Chat models end their turns by tokens that only the generation config names.
  beside("generation_config.json", true, [&model](const Json& json, const std::string& where) {
    read_eos(ConfigReader(json, where), model);
  });
  if (model.vision.present()) {
    beside("preprocessor_config.json", true, [&model](const Json& json, const std::string& where) {
      read_preprocessor(ConfigReader(json, where), model.vision);
    });
    beside("added_tokens.json", false,
           [&model](const Json& json, const std::string&) { read_added_tokens(json, model.vision); });
  }
  // SGLang turns the sparse variant on where this file is beside the config.
  const fs::path sparse = file.parent_path() / "sparse_attention_config.json";
  if (model.dual_chunk.enabled() && !model.dual_chunk.dense_said && fs::exists(sparse, error)) {
    throw_user_error(
        "{}: sparse attention is not simulated; set \"sparse_attention_enabled\" to false in "
        "dual_chunk_attention_config of {}, or move the file away",
        sparse.string(), file.string());
  }
  fs::path folder = fs::weakly_canonical(file, error).parent_path();
  model.name = folder.filename().string();
  return model;
}

}  // namespace tpsim::rank
