#include "rank/config/pipeline_names.h"

#include <system_error>

#include "proto/base/text.h"
#include "rank/catalogue/catalogue.h"

namespace tpsim::rank {
namespace {

constexpr const char* kPipelines = "pipelines";  // of rank/catalogue

}  // namespace

std::vector<std::string> pipeline_catalogue() { return catalogue::names(kPipelines); }

Json pipeline_json(std::string_view name) { return Json::parse(*catalogue::find(kPipelines, name)); }

std::optional<std::string> pipeline_name(const std::string& model_path) {
  const std::string wanted = to_lower(model_path);
  for (const std::string& name : pipeline_catalogue()) {
    if (wanted == name) return name;
    const Json json = pipeline_json(name);
    for (const Json& id : json.at("ids")) {
      if (to_lower(id.get<std::string>()) == wanted) return name;
    }
  }
  return std::nullopt;
}

std::filesystem::path pipeline_index(const std::string& folder) {
  return std::filesystem::path(folder) / "model_index.json";
}

bool is_pipeline(const std::string& model_path) {
  std::error_code ignored;
  return pipeline_name(model_path).has_value() ||
         std::filesystem::exists(pipeline_index(model_path), ignored);
}

}  // namespace tpsim::rank
