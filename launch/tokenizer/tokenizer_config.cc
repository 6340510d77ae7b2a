#include "launch/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::json;

// Tokenizers of Mistral and Gemma list thousands of reserved tokens in tokenizer_config.json.
constexpr std::uintmax_t kMostConfigBytes = 64 << 20;

constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// An object; empty where there is no such file.
Json read_object(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return Json::object();
  Json json = Json::parse(read_model_file(file, kMostConfigBytes), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw_user_error("{}: is not a JSON object", file.string());
  return json;
}

// A number or a list of them; null and nothing are none.
void add_eos_ids(const Json& json, const std::filesystem::path& file, std::vector<std::uint32_t>& ids) {
  const auto found = json.find("eos_token_id");
  if (found == json.end() || found->is_null()) return;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > UINT32_MAX) {
      throw_user_error("{}: eos_token_id is {}; it must be an id or a list of ids", file.string(),
                       in_quotes(found->dump()));
    }
    ids.push_back(id.get<std::uint32_t>());
  }
}

// "<s>", or {"content": "<s>", …}.
void add_special_tokens(const Json& json, std::map<std::string, std::string>& tokens) {
  for (const std::string_view name : kSpecialTokens) {
    const auto found = json.find(name);
    if (found == json.end()) continue;
    if (found->is_string()) {
      tokens.emplace(name, found->get<std::string>());
    } else if (found->is_object() && found->contains("content") && found->at("content").is_string()) {
      tokens.emplace(name, found->at("content").get<std::string>());
    }
  }
}

void read_templates(const Json& json, const std::filesystem::path& file, TokenizerConfig& config) {
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return;
  const auto wrong = [&] {
    throw_user_error(
        "{}: chat_template must be a Jinja template or a list of {{\"name\": …, \"template\": …}}",
        file.string());
  };
  if (found->is_string()) {
    config.chat_templates.emplace("default", found->get<std::string>());
  } else if (found->is_array()) {
    for (const Json& entry : *found) {
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
          !entry.contains("template") || !entry["template"].is_string()) {
        wrong();
      }
      config.chat_templates.emplace(entry["name"], entry["template"]);
    }
  } else {
    wrong();
  }
  config.chat_template_file = file.filename().string();
}

}  // namespace

std::string read_model_file(const std::filesystem::path& file, std::uintmax_t most) {
  std::error_code failed;
  const std::uintmax_t size = std::filesystem::file_size(file, failed);
  if (failed) throw_user_error("{}: cannot be read: {}", file.string(), failed.message());
  if (size > most) throw_user_error("{}: has {} bytes; at most {} are read", file.string(), size, most);
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in && !in.eof()) throw_user_error("{}: cannot be read", file.string());
  return text;
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  TokenizerConfig config;
  // SGLang ends an answer at the ids of either.
  for (const std::string_view name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path file = folder / name;
    const Json json = read_object(file);
    add_eos_ids(json, file, config.eos_ids);
    // Of a model that sees: its text model's.
    const auto text = json.find("text_config");
    if (text != json.end() && text->is_object()) add_eos_ids(*text, file, config.eos_ids);
  }
  std::ranges::sort(config.eos_ids);
  const auto repeated = std::ranges::unique(config.eos_ids);
  config.eos_ids.erase(repeated.begin(), repeated.end());

  const std::filesystem::path file = folder / "tokenizer_config.json";
  const Json json = read_object(file);
  add_special_tokens(json, config.special_tokens);
  add_special_tokens(read_object(folder / "special_tokens_map.json"), config.special_tokens);
  // A file of its own comes first, as in Transformers.
  const std::filesystem::path jinja = folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja)) {
    config.chat_templates.emplace("default", read_model_file(jinja, kMostConfigBytes));
    config.chat_template_file = jinja.filename().string();
  } else {
    read_templates(json, file, config);
  }
  return config;
}

}  // namespace tpsim::launch
