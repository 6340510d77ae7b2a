// Which names and folders are diffusion pipelines: asked before it is known what a command line is about.
// What one is made of is rank/diffusion's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rank/config/config_reader.h"

namespace tpsim::rank {

// Names of rank/catalogue/pipelines, sorted.
std::vector<std::string> pipeline_catalogue();
// What the catalogue says of one of these.
Json pipeline_json(std::string_view name);
// The name in the catalogue of a name or Hugging Face id ("Wan-AI/Wan2.1-T2V-14B-Diffusers"), in any case.
std::optional<std::string> pipeline_name(const std::string& model_path);
// What makes a folder a pipeline: its model_index.json.
std::filesystem::path pipeline_index(const std::string& folder);

// Whether `model_path` is a pipeline: one of the catalogue, or a folder with a model_index.json.
bool is_pipeline(const std::string& model_path);
// Throws UserError naming --model-path where `model_path` is neither a name of the catalogue, of a pipeline
// or a language model, nor a path that exists.
void check_model_known(const std::string& model_path);

}  // namespace tpsim::rank
