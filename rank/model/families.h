// The families of models, one file each in families/: whose config.json they read, and what the code of the
// model does without a key. The list is families/CMakeLists.txt (in its order), from which everything
// follows: what parse_model_config() accepts and what its refusals name.
//
// Facts: Transformers' configuration_*.py and modeling_*.py of each model, and SGLang's models/*.py.
#pragma once

#include <span>
#include <string_view>

#include "rank/model/config_reader.h"
#include "rank/model/model_config.h"

namespace tpsim::rank {

struct ModelFamily {
  // What "architectures" of a config.json may name.
  std::span<const std::string_view> architectures;
  // Fills what the common sizes leave open: biases, norms, windows, rope, experts, MLA. Throws UserError.
  // REQUIRES: what read_common() of model_config.cc sets.
  void (*read)(const ConfigReader& config, ModelConfig& model);
  // An object in JSON: what the configuration class takes for keys that a "text_config" leaves out.
  std::string_view text_defaults = "{}";
};

std::span<const ModelFamily* const> model_families();
// The one that reads `architecture`, or nullptr.
const ModelFamily* find_family(std::string_view architecture);

}  // namespace tpsim::rank
