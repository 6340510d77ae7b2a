#include "rank/config/catalogue_models.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "proto/base/text.h"
#include "rank/catalogue/catalogue.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;

// rank/catalogue/releases.
const Json& releases() {
  static const Json kAll = Json::parse(*catalogue::find("releases", "releases"));
  return kAll;
}
const Json* find_release(const std::string& name) {
  const auto found = releases().at("releases").find(name);
  return found == releases().at("releases").end() ? nullptr : &*found;
}

std::string patched(const std::string& text, const Json& patch) {
  Json json = Json::parse(text);
  json.merge_patch(patch);
  return json.dump();
}

constexpr std::string_view kKind = "drafts";

Json draft(const std::string& name) { return Json::parse(*catalogue::find(kKind, name)); }

}  // namespace

std::string catalogue_key(const std::string& name) {
  std::string key = to_lower(name);
  const bool by_nvidia = key.starts_with("nvidia/");
  for (const std::string_view publisher :
       {"meta-llama/",   "qwen/",        "mistralai/",      "tinyllama/",     "deepseek-ai/",
        "zai-org/",      "moonshotai/",  "openai/",         "google/",        "microsoft/",
        "nvidia/",       "opengvlab/",   "minimaxai/",      "internlm/",      "liquidai/",
        "stepfun-ai/",   "xiaomimimo/",  "inclusionai/",    "poolside/",      "baidu/",
        "tencent/",      "zhipuai/",     "redhatai/",       "quanttrio/",     "amd/",
        "codellama/",    "lmsys/",       "01-ai/",          "huggingfacetb/", "unsloth/",
        "nousresearch/", "neuralmagic/", "hugging-quants/", "casperhansen/",  "ibm-granite/",
        "allenai/",      "coherelabs/",  "cohereforai/",    "lgai-exaone/",   "thudm/",
        "bigcode/",      "stabilityai/", "openbmb/",        "arcee-ai/",      "meta-"}) {
    if (key.starts_with(publisher)) key.erase(0, publisher.size());
  }
  for (const std::string_view part : {"-instruct", "-base", "-v0.3", "-chat-v1.0", "-2512"}) {
    const std::size_t at = key.find(part);
    if (at != std::string::npos) key.erase(at, part.size());
  }
  for (const std::string_view end : {"-hf", "-chat", "-it", "-pt"}) {
    if (key.ends_with(end)) key.erase(key.size() - end.size());
  }
  const Json* const release = find_release(key);
  // ModelOpt's checkpoints: other scales than others' of the same ending, and FP4 is NVFP4.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kModelOpt = {
      {{"-fp8", "-modelopt-fp8"}, {"-fp4", "-nvfp4"}, {"-fp4-v2", "-nvfp4"}, {"-nvfp4-v2", "-nvfp4"}}};
  if (by_nvidia && release == nullptr) {
    const auto known =
        std::ranges::find_if(kModelOpt, [&key](const auto& ending) { return key.ends_with(ending.first); });
    if (known != kModelOpt.end())
      key.replace(key.size() - known->first.size(), std::string::npos, known->second);
  }
  return release != nullptr && release->size() == 1 ? release->at("of").get<std::string>() : key;
}

std::string hub_id(const std::string& name) {
  const Json& hub = releases().at("hub");
  const auto id = hub.find(name);
  return id == hub.end() ? name : id->get<std::string>();
}

std::optional<std::string> catalogue_config(const std::string& key) {
  if (const auto text = catalogue::find("models", key)) return std::string(*text);
  const Json& quantizations = releases().at("quantizations");
  if (const Json* const release = find_release(key)) {
    const std::string text = *catalogue_config(release->at("of"));
    if (const auto changes = release->find("changes"); changes != release->end())
      return patched(text, *changes);
    const auto stored = release->find("quantization");
    return stored == release->end() ? text : patched(text, quantizations.at(stored->get<std::string>()));
  }
  for (const Json& ending : releases().at("endings")) {
    const auto end = ending.at("end").get<std::string>();
    if (!key.ends_with(end) || !key.starts_with(ending.value("start", ""))) continue;
    const std::optional<std::string> text = catalogue_config(key.substr(0, key.size() - end.size()));
    return text
               ? std::optional(patched(*text, quantizations.at(ending.at("quantization").get<std::string>())))
               : std::nullopt;
  }
  return std::nullopt;
}

std::optional<ModelConfig> catalogue_draft(const std::string& name) {
  for (const std::string& known : catalogue::names(kKind)) {
    const Json json = draft(known);
    bool meant = to_lower(name) == known;
    for (const Json& id : json.at("_ids")) meant |= to_lower(name) == to_lower(id.get<std::string>());
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
