// What a model folder says of its tokenizer beside the vocabulary: which ids end an answer
// (generation_config.json, config.json), what the special tokens are called, and the chat templates
// (tokenizer_config.json, special_tokens_map.json, chat_template.jinja).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tpsim::launch {

struct TokenizerConfig {
  std::vector<std::uint32_t> eos_ids;  // ascending; may be empty
  // "eos_token" → "</s>": the names that Transformers gives a chat template.
  std::map<std::string, std::string> special_tokens;
  // "default", "tool_use" …: by their names; empty where there is none.
  std::map<std::string, std::string> chat_templates;
  std::string chat_template_file;  // where they stand
};

// Throws UserError naming the file where one is there and is not such JSON.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

// The text of a file of a model folder. Throws UserError where it cannot be read or is larger than `most`
// bytes.
std::string read_model_file(const std::filesystem::path& file, std::uintmax_t most);

}  // namespace tpsim::launch
