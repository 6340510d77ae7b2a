// A component of a pipeline's folder, read to be computed.
#pragma once

#include <filesystem>
#include <string_view>

#include "launch/numeric/pipeline_reference.h"
#include "rank/config/config_reader.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/dummy_weights.h"

namespace tpsim::launch {

constexpr std::string_view kComponentConfig = "a configuration";

// What `load(config, weights)` makes of a component's config.json and of its weights, `dummy` or its own.
// Throws UserError naming --model-path or the file.
template <typename Load>
auto load_component(const std::filesystem::path& at, bool dummy, const Load& load) {
  const rank::Json json = read_pipeline_json("--model-path", at / "config.json", kComponentConfig);
  const rank::ConfigReader config(json, (at / "config.json").string());
  return dummy ? load(config, rank::DummyWeights(/*seed=*/0)) : load(config, rank::Checkpoint(at.string()));
}

}  // namespace tpsim::launch
