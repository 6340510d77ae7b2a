#include "launch/serve/token_routes.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "launch/serve/prompt_tokens.h"
#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"
#include "launch/serve/protocol/refusal.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

void needs_tokenizer(const ServeContext& context) {
  if (context.format.skip_tokenizer)
    refuse_value("--skip-tokenizer-init: this server has no tokenizer; start it without");
}

std::string answer(const ServeContext& context, ordered_json tokens, ordered_json count) {
  ordered_json out;
  out["tokens"] = std::move(tokens);
  out["count"] = std::move(count);
  out["max_model_len"] = context.context_length;
  return out.dump();
}

}  // namespace

std::string tokenize_answer(const ServeContext& context, std::string_view body) {
  needs_tokenizer(context);
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  const json* const prompt = fields.find("prompt");
  const bool chat = fields.find("messages") != nullptr;
  if (chat == (prompt != nullptr))
    refuse_field("body", "Value error, Exactly one of 'prompt' or 'messages' must be provided.");
  if (chat) {
    GenerateCall call = parse_chat(body, context.parse_limits);
    const std::vector<std::uint32_t> ids = chat_tokens(context, call);
    return answer(context, ids, ids.size());
  }
  const bool special = fields.boolean("add_special_tokens", true);
  if (prompt->is_string()) {
    const std::vector<std::uint32_t> ids = context.tokenizer->encode(prompt->get<std::string>(), special);
    return answer(context, ids, ids.size());
  }
  ordered_json tokens = ordered_json::array(), counts = ordered_json::array();
  for (const std::string& text : fields.texts("prompt")) {
    const std::vector<std::uint32_t> ids = context.tokenizer->encode(text, special);
    tokens.push_back(ids);
    counts.push_back(ids.size());
  }
  return answer(context, std::move(tokens), std::move(counts));
}

std::string detokenize_answer(const ServeContext& context, std::string_view body) {
  needs_tokenizer(context);
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  const json* const tokens = fields.find("tokens");
  if (tokens == nullptr) refuse_field("tokens", "Field required");
  const bool skip_special = fields.boolean("skip_special_tokens", true);
  ordered_json out;
  if (tokens->is_array() && !tokens->empty() && tokens->front().is_array()) {
    out["text"] = ordered_json::array();
    for (const json& ids : *tokens)
      out["text"].push_back(context.tokenizer->decode(token_ids(ids, "tokens"), skip_special));
  } else {
    out["text"] = context.tokenizer->decode(token_ids(*tokens, "tokens"), skip_special);
  }
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace tpsim::launch
