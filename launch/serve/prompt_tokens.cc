#include "launch/serve/prompt_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "launch/serve/protocol/json_fields.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string chat_text(const ServedModel& model, const GenerateCall& call) {
  try {
    return model.chat->apply(
        {.messages = call.messages, .tools = call.tools, .template_arguments = call.chat_template_kwargs});
  } catch (const UserError& error) {
    refuse_value(error.what());
  }
}

std::vector<std::uint32_t> encode(const ServedModel& model, const GenerateCall& call, PromptInput& prompt) {
  if (call.api == GenerateCall::Api::kChat) {
    if (model.format.skip_tokenizer)
      refuse_value("--skip-tokenizer-init: messages need a tokenizer, send input_ids to /generate");
    prompt.text = chat_text(model, call);
    return model.tokenizer->encode(prompt.text, !model.chat->real());
  }
  if (!prompt.is_text) return std::move(prompt.ids);
  if (model.format.skip_tokenizer)
    refuse_value(
        "The engine initialized with skip_tokenizer_init=True cannot accept text prompts. Please provide "
        "input_ids or re-initialize the engine with skip_tokenizer_init=False.");
  return model.tokenizer->encode(prompt.text, true);
}

void check(const ServeContext& context, const ServedModel& model, const std::vector<std::uint32_t>& ids,
           const SamplingFields& sampling) {
  if (ids.empty()) refuse_value("input_ids cannot be empty.");
  const auto beyond =
      std::find_if(ids.begin(), ids.end(), [&](std::uint32_t id) { return id >= model.vocab_size; });
  if (beyond != ids.end())
    refuse_value(fmt::format("The input_ids contain {}, which is not below the vocab size ({}).", *beyond,
                             model.vocab_size));
  const std::uint64_t length = ids.size();
  if (length >= model.context_length)
    refuse_value(fmt::format("The input ({} tokens) is longer than the model's context length ({} tokens).",
                             length, model.context_length));
  if (!sampling.max_new_tokens) return;
  const std::uint64_t wanted = *sampling.max_new_tokens;
  if (length + wanted > model.context_length)
    refuse_value(fmt::format(
        "Requested token count exceeds the model's maximum context length of {} tokens. You requested a "
        "total of {} tokens: {} tokens from the input messages and {} tokens for the completion. Please "
        "reduce the number of tokens in the input messages or the completion to fit within the limit.",
        model.context_length, length + wanted, length, wanted));
  if (context.max_output_tokens && wanted > *context.max_output_tokens)
    refuse_value(fmt::format("{} tokens for the completion are more than --max-output-tokens {} allows",
                             wanted, *context.max_output_tokens));
}

void needs_tokenizer(const ServedModel& model) {
  if (model.format.skip_tokenizer)
    refuse_value("--skip-tokenizer-init: this server has no tokenizer; start it without");
}

// Whose tokenizer is asked.
const ServedModel& model_of(const ServeContext& context, const JsonFields& fields) {
  const std::optional<std::string> name = context.by_name ? fields.text("model") : std::nullopt;
  const ServedModel* const model = context.find_model(name);
  if (model == nullptr)
    throw Refusal(
        404, "NotFoundError",
        name ? fmt::format("The model '{}' does not exist", *name) : "model: which one's tokenizer?");
  needs_tokenizer(*model);
  return *model;
}

HttpResponse answer(const ServedModel& model, ordered_json tokens, ordered_json count) {
  ordered_json out;
  out["tokens"] = std::move(tokens);
  out["count"] = std::move(count);
  out["max_model_len"] = model.context_length;
  return {.body = out.dump(), .headers = model.answer_headers};
}

}  // namespace

std::vector<std::vector<std::uint32_t>> tokenize(const ServeContext& context, const ServedModel& model,
                                                 GenerateCall& call) {
  if (call.sampling.size() == 1) call.sampling.resize(call.prompts.size(), call.sampling.front());
  std::vector<std::vector<std::uint32_t>> prompts;
  for (std::size_t i = 0; i < call.prompts.size(); ++i) {
    const SamplingFields& sampling = call.sampling[i];
    prompts.push_back(encode(model, call, call.prompts[i]));
    check(context, model, prompts.back(), sampling);
    if (context.computes && !sampling.undrawable.empty())
      refuse_value(
          fmt::format("{}: numeric execution draws by temperature, top_k and top_p alone; leave it out",
                      sampling.undrawable));
    if (call.echo && !call.prompts[i].is_text)
      call.prompts[i].text = model.tokenizer->decode(prompts.back(), true);
  }
  return prompts;
}

HttpResponse tokenize_answer(const ServeContext& context, std::string_view body) {
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  const ServedModel& model = model_of(context, fields);
  const json* const prompt = fields.find("prompt");
  const bool chat = fields.find("messages") != nullptr;
  if (chat == (prompt != nullptr))
    refuse_field("body", "Value error, Exactly one of 'prompt' or 'messages' must be provided.");
  if (chat) {
    GenerateCall call = parse_chat(body, context.parse_limits);
    const std::vector<std::uint32_t> ids =
        model.tokenizer->encode(chat_text(model, call), !model.chat->real());
    return answer(model, ids, ids.size());
  }
  const bool special = fields.boolean("add_special_tokens", true);
  if (prompt->is_string()) {
    const std::vector<std::uint32_t> ids = model.tokenizer->encode(prompt->get<std::string>(), special);
    return answer(model, ids, ids.size());
  }
  ordered_json tokens = ordered_json::array(), counts = ordered_json::array();
  for (const std::string& text : fields.texts("prompt")) {
    const std::vector<std::uint32_t> ids = model.tokenizer->encode(text, special);
    tokens.push_back(ids);
    counts.push_back(ids.size());
  }
  return answer(model, std::move(tokens), std::move(counts));
}

HttpResponse detokenize_answer(const ServeContext& context, std::string_view body) {
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  const ServedModel& model = model_of(context, fields);
  const json* const tokens = fields.find("tokens");
  if (tokens == nullptr) refuse_field("tokens", "Field required");
  const bool skip_special = fields.boolean("skip_special_tokens", true);
  ordered_json out;
  if (tokens->is_array() && !tokens->empty() && tokens->front().is_array()) {
    out["text"] = ordered_json::array();
    for (const json& ids : *tokens)
      out["text"].push_back(model.tokenizer->decode(token_ids(ids, "tokens"), skip_special));
  } else {
    out["text"] = model.tokenizer->decode(token_ids(*tokens, "tokens"), skip_special);
  }
  return {.body = out.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
          .headers = model.answer_headers};
}

}  // namespace tpsim::launch
