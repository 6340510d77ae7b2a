#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/config_reader.h"
#include "rank/config/pipeline_names.h"
#include "rank/cost/hardware.h"
#include "rank/diffusion/pipeline.h"
#include "rank/diffusion/pipeline_parts.h"

namespace tpsim::rank {
namespace {

constexpr const char* kExamples = "rank/catalogue/pipelines";

// A pipeline as the catalogue has it: model_index, components (config.json by name), sampling.
struct Description {
  Json json;
  std::string name, where;
};

Json read_file(const std::filesystem::path& path) {
  return parse_object(small_file(path.string(), "--model-path", "a configuration"), path.string(),
                      "a configuration", kExamples);
}

Description read_folder(const std::string& folder) {
  Description out;
  out.where = pipeline_index(folder).string();
  out.name = std::filesystem::path(folder).filename().string();
  if (out.name.empty()) out.name = std::filesystem::path(folder).parent_path().filename().string();
  out.json["model_index"] = read_file(pipeline_index(folder));
  out.json["components"] = Json::object();
  for (const auto& [name, entry] : out.json["model_index"].items()) {
    const std::filesystem::path config = std::filesystem::path(folder) / name / "config.json";
    if (entry.is_array() && std::filesystem::exists(config)) out.json["components"][name] = read_file(config);
  }
  return out;
}

struct FoundClass {
  const TransformerFamily* family = nullptr;
  const PipelineRow* row = nullptr;
};
FoundClass find_pipeline_class(const std::string& name, const std::string& where) {
  std::vector<std::string_view> known;
  for (const TransformerFamily* const family : transformer_families()) {
    for (const PipelineRow& row : family->pipelines) {
      if (row.class_name == name) return {family, &row};
      known.push_back(row.class_name);
    }
  }
  throw_user_error("--model-path: {}: pipeline class {} is not simulated, use one of {}", where,
                   name.empty() ? "(none)" : name, join_or(known));
}

const TransformerFamily* find_transformer_class(std::string_view name) {
  for (const TransformerFamily* const family : transformer_families()) {
    if (std::ranges::find(family->classes, name) != family->classes.end()) return family;
  }
  return nullptr;
}

std::uint64_t rounded(double elements) { return static_cast<std::uint64_t>(elements + 0.5); }

std::uint32_t encoder_bytes(const PipelineRow& row, std::string_view name) {
  const auto use = std::ranges::find(row.encoders, name, &EncoderUse::component);
  return use == row.encoders.end() ? 2 : use->bytes;
}

// What is no network, or none that a pass runs on a GPU.
bool beside(std::string_view class_name) {
  return class_name.ends_with("Tokenizer") || class_name.ends_with("TokenizerFast") ||
         class_name.ends_with("Processor") || class_name.ends_with("ProcessorFast") ||
         class_name.ends_with("Scheduler") || class_name.ends_with("Extractor");
}

void read_component(const std::string& name, const std::string& class_name, const Json* json,
                    const std::string& where, PipelineConfig& config, PipelineParts& parts) {
  PipelineComponent c{.name = name, .class_name = class_name};
  const auto reader = [&] {
    if (json == nullptr) throw_user_error("{}: component {} has no config.json", where, name);
    return ConfigReader(*json, where + ": " + name);
  };
  if (const TransformerFamily* const family = find_transformer_class(class_name)) {
    TransformerConfig t;
    family->read(reader(), t);
    OperatorList list;
    family->write(t, {}, list);
    c.kind = ComponentKind::kTransformer;
    c.parameters = rounded(list.parameters());
    TransformerConfig none = t;
    none.layers = none.single_layers = 0;
    OperatorList rest;
    family->write(none, {}, rest);
    c.outside = rounded(rest.parameters());
    c.layers = t.layers + t.single_layers;
    c.heads = t.heads;
    c.head_dim = t.head_dim;
    c.cross_attention = family->cross_attention;
    config.patch = t.patch;
    parts.transformers.emplace(name, t);
  } else if (is_encoder(class_name)) {
    const EncoderConfig stored = read_encoder(class_name, reader()), e = loaded_encoder(stored);
    const auto parameters = [](const EncoderConfig& encoder) {
      OperatorList list;
      write_encoder(encoder, 0, 0, 0, list);
      return rounded(list.parameters() + encoder_table_parameters(encoder));
    };
    c.kind = e.kind == EncoderConfig::Kind::kClipVision ? ComponentKind::kImageEncoder
                                                        : ComponentKind::kTextEncoder;
    c.parameters = parameters(stored);
    c.loaded = parameters(e);
    c.outside = rounded(encoder_table_parameters(e));
    c.bytes_per_parameter = encoder_bytes(*parts.row, name);
    c.layers = e.layers;
    c.heads = e.heads;
    c.head_dim = e.head_dim;
    c.selects = e.selects;
    parts.encoders.emplace(name, e);
  } else if (is_vae(class_name)) {
    parts.vae = read_vae(class_name, reader());
    parts.vae_name = name;
    OperatorList list;
    const LatentShape none{.frames = 1, .height = 1, .width = 1};
    write_vae_decoder(parts.vae, 1, none, list);
    if (!parts.row->vae_encodes) c.loaded = rounded(list.parameters());
    write_vae_encoder(parts.vae, 1, none, list);
    c.kind = ComponentKind::kVae;
    c.parameters = rounded(list.parameters());
    c.bytes_per_parameter = parts.row->vae_bytes;
    config.spatial_stride = parts.vae.spatial_stride;
    config.temporal_stride = config.video ? parts.vae.temporal_stride : 1;
  } else if (name.starts_with("transformer") || name.starts_with("text_encoder") || name == "vae" ||
             name == "image_encoder") {
    throw_user_error("--model-path: {}: {} is a {}, which is not simulated", where, name, class_name);
  } else {
    c.kind = ComponentKind::kOther;
    if (json != nullptr && json->contains("parameters") && json->at("parameters").is_number())
      c.parameters = json->at("parameters").get<std::uint64_t>();
  }
  if (c.loaded == 0) c.loaded = c.parameters;
  config.components.push_back(std::move(c));
}

void read_sampling(const ConfigReader& json, SamplingDefaults& defaults) {
  defaults.width = json.number_or("width", defaults.width);
  defaults.height = json.number_or("height", defaults.height);
  defaults.frames = json.number_or("frames", defaults.frames);
  defaults.fps = json.number_or("fps", defaults.fps);
  defaults.steps = json.number_or("steps", defaults.steps);
  defaults.guidance = json.real("guidance", defaults.guidance, 0, 1e3);
  defaults.guided = json.flag("guided", defaults.guided);
}

// Names of modules in the catalogue, in the order of Module.
constexpr std::string_view kModuleNames[kModules] = {"outside",       "modulation", "attention", "mlp",
                                                     "image_mlp_out", "single",     "single_mlp"};

std::vector<QuantisedCheckpoint> read_quantised(const Json& description, double blocks, KeptModules kept) {
  std::vector<QuantisedCheckpoint> out;
  for (const Json& entry : description.value("quantised", Json::array())) {
    QuantisedCheckpoint& c = out.emplace_back();
    c.kept = kept;
    c.id = entry.at("id").get<std::string>();
    c.whole = std::ranges::find(description.at("ids"), entry.at("id")) != description.at("ids").end();
    for (const Json& module : entry.at("keeps"))
      c.kept.modules |= 1U << (std::ranges::find(kModuleNames, module.get<std::string>()) - kModuleNames);
    c.kept.blocks = entry.value("keeps_blocks", 0) / blocks;
  }
  return out;
}

}  // namespace

double quantised_parameters(const PipelineConfig& config, const PipelineComponent& transformer,
                            const KeptModules& kept) {
  OperatorList list;
  config.parts->family->write(config.parts->transformers.at(transformer.name), {}, list);
  return list.quantised(kept);
}

PipelineConfig load_pipeline(const std::string& model_path) {
  Description description;
  if (const std::optional<std::string> name = pipeline_name(model_path)) {
    description = {.json = pipeline_json(*name), .name = *name, .where = *name};
  } else if (std::error_code ignored; std::filesystem::exists(pipeline_index(model_path), ignored)) {
    description = read_folder(model_path);
  } else {
    throw_user_error("--model-path {}: no pipeline: neither a folder with model_index.json nor one of {}",
                     model_path, fmt::join(pipeline_catalogue(), ", "));
  }
  const Json& index = description.json.at("model_index");
  const ConfigReader reader(index, description.where);
  const std::string class_name = reader.text("_class_name", "");
  const FoundClass found = find_pipeline_class(class_name, description.where);
  const PipelineRow& row = *found.row;
  auto parts = std::make_shared<PipelineParts>();
  parts->family = found.family;
  parts->row = &row;
  parts->vae_decode_bytes = row.vae_decode_bytes;
  // Noise above the boundary falls to the first of two transformers: of a linear schedule that is shifted,
  // the steps above that noise. SGLang's flow_shift (configs/pipeline_configs/wan.py), or 3, as it has by
  // default.
  const double boundary = reader.real("boundary_ratio", 1, 0, 1);
  const double shift = ConfigReader(description.json, description.where).real("flow_shift", 3, 1, 100);
  parts->first_share = 1 - boundary / (shift - boundary * (shift - 1));
  PipelineConfig config;
  config.name = description.name;
  config.class_name = class_name;
  config.video = row.video;
  config.image_input = row.image_input;
  config.needs_image = row.needs_image;
  config.defaults = row.defaults;
  const Json& components = description.json.at("components");
  for (const auto& [name, entry] : index.items()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[1].is_string()) continue;
    const std::string component = entry[1].get<std::string>();
    if (beside(component)) continue;
    read_component(name, component, components.contains(name) ? &components.at(name) : nullptr,
                   description.where, config, *parts);
  }
  if (parts->transformers.empty() || parts->vae.decoder.empty())
    throw_user_error("--model-path: {}: a pipeline needs a transformer and a vae", description.where);
  const TransformerConfig& first = parts->transformers.begin()->second;
  config.kept = found.family->kept;
  config.quantised = read_quantised(description.json, first.layers + first.single_layers, config.kept);
  // Wan 2.2's 5B model: a key of model_index.json that its transformer goes by.
  if (reader.flag("expand_timesteps", false)) {
    for (auto& [name, transformer] : parts->transformers) transformer.token_timesteps = true;
    config.image_input = true;
    config.needs_image = false;
    for (PipelineComponent& c : config.components) {
      if (c.kind == ComponentKind::kVae) c.loaded = c.parameters;
    }
  }
  if (description.json.contains("sampling"))
    read_sampling(ConfigReader(description.json.at("sampling"), description.where), config.defaults);
  if (description.json.contains("vae_decode_bytes"))
    parts->vae_decode_bytes = description.json.at("vae_decode_bytes").get<std::uint32_t>();
  config.parts = std::move(parts);
  return config;
}

}  // namespace tpsim::rank
