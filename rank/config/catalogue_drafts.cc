#include "rank/config/catalogue_drafts.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "rank/catalogue/catalogue.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kKind = "drafts";

Json draft(const std::string& name) { return Json::parse(*catalogue::find(kKind, name)); }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::optional<ModelConfig> catalogue_draft(const std::string& name) {
  for (const std::string& known : catalogue::names(kKind)) {
    const Json json = draft(known);
    bool meant = same_name(name, known);
    for (const Json& id : json.at("_ids")) meant |= same_name(name, id.get_ref<const std::string&>());
    if (!meant) continue;
    ModelConfig model = parse_model_config(json.dump(), known);
    model.name = known;
    return model;
  }
  return std::nullopt;
}

std::vector<std::string> catalogue_drafts_for(const std::string& target) {
  std::vector<std::string> ids;
  for (const std::string& known : catalogue::names(kKind)) {
    const Json json = draft(known);
    if (target.empty() || json.at("_target") == target)
      ids.push_back(json.at("_ids").at(0).get<std::string>());
  }
  return ids;
}

}  // namespace tpsim::rank
