// The families of models, one file each in families/: whose config.json they read, and what the code of the
// model does without a key. The list is families/CMakeLists.txt (in its order), from which everything
// follows: what parse_model_config() accepts and what its refusals name.
//
// Facts: Transformers' configuration_*.py and modeling_*.py of each model, and SGLang's models/*.py.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "rank/config/config_reader.h"
#include "rank/config/model_config.h"
#include "rank/config/vision_config.h"

namespace tpsim::rank {

// What "architectures" of a config.json may name.
struct Architecture {
  std::string_view name;
  ArchitectureFacts facts = {};
  std::string_view model_type = {};  // stands for it where a multimodal config describes its text model
};

// A whole model that sees images.
struct VisionArchitecture {
  std::string_view name;
  // "vision_config", and what the config says outside of it. Throws UserError.
  void (*read)(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision);
  // Of the object that describes a text model with an architecture of its own; where there is none, the text
  // model has this one.
  const char* text_key = "llm_config";
};

struct ModelFamily {
  std::span<const Architecture> architectures;  // of text models
  // Fills what the common sizes leave open: biases, norms, windows, rope, experts, MLA. Throws UserError.
  // REQUIRES: what read_common() of model_reader.cc sets.
  void (*read)(const ConfigReader& config, ModelConfig& model);
  // An object in JSON: what the configuration class takes for keys that a "text_config" leaves out.
  std::string_view text_defaults = "{}";
  std::span<const VisionArchitecture> vision = {};
  // Keys that its configs call otherwise: theirs, then the usual one.
  std::span<const std::pair<const char*, const char*>> other_keys = {};
};

std::span<const ModelFamily* const> model_families();
// The row of `name`, and the family that reads it; or null.
struct FoundArchitecture {
  const ModelFamily* family = nullptr;
  const Architecture* row = nullptr;
};
FoundArchitecture find_architecture(std::string_view name);
const VisionArchitecture* find_vision_architecture(std::string_view name);

}  // namespace tpsim::rank
