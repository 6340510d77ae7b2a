#include "rank/config/catalogue_models.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "rank/catalogue/catalogue.h"

namespace tpsim::rank {
namespace {

using Json = nlohmann::json;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// A release that is another model with some keys changed: a JSON merge patch (RFC 7396).
struct Release {
  std::string_view name, of, patch;
};
constexpr std::string_view kFp8Blocks =
    R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128]}})";
// GLM's: a scale for each output channel, activations by the token.
constexpr std::string_view kFp8Channels =
    R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"],
          "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": false, "symmetric": true},
          "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true,
                                "symmetric": true}}},
        "ignore": ["lm_head"]}})";
constexpr std::string_view kGlm46 = R"({"max_position_embeddings": 202752})";
// nvidia/DeepSeek-R1-FP4 and its kin: ModelOpt's NVFP4 but for attention and the head.
constexpr std::string_view kDeepseekNvfp4 =
    R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "fmt": null,
        "activation_scheme": null, "weight_block_size": null, "ignore": ["*self_attn*", "lm_head"]}})";
// Qwen3's releases of July 2025.
constexpr std::string_view kQwen2507 = R"({"max_position_embeddings": 262144, "rope_theta": 5000000})";
constexpr Release kReleases[] = {
    {"deepseek-r1-0528", "deepseek-r1", ""},
    {"deepseek-r1-0528-fp4", "deepseek-r1", kDeepseekNvfp4},
    {"deepseek-r1-fp4", "deepseek-r1", kDeepseekNvfp4},
    {"deepseek-v3-0324", "deepseek-v3", ""},
    {"deepseek-v3-0324-fp4", "deepseek-v3", kDeepseekNvfp4},
    {"deepseek-v3.1", "deepseek-v3", ""},
    {"deepseek-v3.1-terminus", "deepseek-v3", ""},
    {"deepseek-v3.2-exp", "deepseek-v3.2", ""},
    {"glm-4.5-air-fp8", "glm-4.5-air", kFp8Channels},
    {"glm-4.5-fp8", "glm-4.5", kFp8Channels},
    {"glm-4.6", "glm-4.5", kGlm46},
    {"glm-4.6-fp8", "glm-4.6", kFp8Channels},
    {"glm-4.7", "glm-4.5", kGlm46},
    {"glm-4.7-fp8", "glm-4.6", kFp8Channels},
    {"glm-5-fp8", "glm-5", kFp8Blocks},
    {"kimi-k2-0905", "kimi-k2", R"({"max_position_embeddings": 262144, "rope_scaling": {"factor": 64}})"},
    {"internvl3_5-8b", "internvl3.5-8b", ""},
    {"llama-4-scout-17b-16e", "llama-4-scout", ""},
    {"mistral-small-3.1-24b-2503", "mistral-small", ""},
    {"mistral-small-3.2-24b-2506", "mistral-small", ""},
    {"mistral-small-24b-2501", "mistral-small",
     R"({"text_config": {"max_position_embeddings": 32768, "rope_theta": 100000000.0}})"},
    {"mixtral-8x7b-v0.1", "mixtral-8x7b", ""},
    {"qwen3-235b-a22b-2507", "qwen3-235b-a22b", kQwen2507},
    {"qwen3-235b-a22b-thinking-2507", "qwen3-235b-a22b", kQwen2507},
    {"qwen3-30b-a3b-2507", "qwen3-30b-a3b", R"({"max_position_embeddings": 262144, "rope_theta": 10000000})"},
    {"qwen3-30b-a3b-thinking-2507", "qwen3-30b-a3b",
     R"({"max_position_embeddings": 262144, "rope_theta": 10000000})"},
};

std::string patched(const std::string& text, std::string_view patch) {
  Json json = Json::parse(text);
  json.merge_patch(Json::parse(patch));
  return json.dump();
}

}  // namespace

std::string catalogue_key(const std::string& name) {
  std::string key = lower(name);
  for (const std::string_view publisher :
       {"meta-llama/", "qwen/", "mistralai/", "tinyllama/", "deepseek-ai/", "zai-org/", "moonshotai/",
        "openai/", "google/", "microsoft/", "nvidia/", "opengvlab/", "meta-"}) {
    if (key.starts_with(publisher)) key.erase(0, publisher.size());
  }
  for (const std::string_view part : {"-instruct", "-base", "-v0.3", "-chat-v1.0"}) {
    const std::size_t at = key.find(part);
    if (at != std::string::npos) key.erase(at, part.size());
  }
  for (const std::string_view end : {"-chat", "-it", "-pt"}) {
    if (key.ends_with(end)) key.erase(key.size() - end.size());
  }
  for (const Release& release : kReleases) {
    if (key == release.name && release.patch.empty()) return std::string(release.of);
  }
  return key;
}

std::optional<std::string> catalogue_config(const std::string& key) {
  if (const auto text = catalogue::find("models", key)) return std::string(*text);
  for (const Release& release : kReleases) {
    if (key == release.name) return patched(*catalogue_config(std::string(release.of)), release.patch);
  }
  constexpr std::string_view kFp8 = "-fp8";
  if (!key.starts_with("qwen3") || !key.ends_with(kFp8)) return std::nullopt;
  const std::optional<std::string> text = catalogue_config(key.substr(0, key.size() - kFp8.size()));
  return text ? std::optional(patched(*text, kFp8Blocks)) : std::nullopt;
}

}  // namespace tpsim::rank
