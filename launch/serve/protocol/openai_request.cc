// OpenAI's protocol as SGLang speaks it: CompletionRequest and ChatCompletionRequest of
// entrypoints/openai/protocol.py.
#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/case_conv.hpp>
#include <iterator>

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;

void read_stream_options(const JsonFields& fields, GenerateCall& call) {
  call.stream = fields.boolean("stream", false);
  const json* const options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) refuse_field("stream_options", "Input should be an object");
  const JsonFields inner(*options, "stream_options.");
  call.include_usage = inner.boolean("include_usage", false);
  call.continuous_usage_stats = inner.boolean("continuous_usage_stats", false);
}

void refuse_format(const JsonFields& fields) {
  const json* const format = fields.find("response_format");
  if (format == nullptr) return;
  if (!format->is_object()) refuse_field("response_format", "Input should be an object");
  const std::string type = JsonFields(*format, "response_format.").text("type").value_or("");
  if (type != "text")
    refuse_value(fmt::format(
        "response_format: answers that follow a grammar are not simulated; leave it out, or say \"text\""));
}

void read_shared(const JsonFields& fields, GenerateCall& call) {
  refuse_unsimulated(fields);
  refuse_format(fields);
  call.model = fields.text("model");
  call.n = static_cast<std::uint32_t>(fields.integer("n", 1, kMostAnswers).value_or(1));
  read_stream_options(fields, call);
  read_common(fields, call);
}

void read_prompt(const json& prompt, GenerateCall& call) {
  const auto add = [&call](const json& one) {
    PromptInput& input = call.prompts.emplace_back();
    input.is_text = one.is_string();
    if (input.is_text)
      input.text = one.get<std::string>();
    else
      input.ids = token_ids(one, "prompt");
  };
  if (!prompt.is_string() && !prompt.is_array())
    refuse_field("prompt", "Input should be a string, a list of strings, token ids, or lists of them");
  if (prompt.is_string() || (!prompt.empty() && prompt.front().is_number())) {
    add(prompt);
  } else {
    for (const json& one : prompt) add(one);
  }
  const auto empty = [](const PromptInput& one) { return one.text.empty() && one.ids.empty(); };
  if (std::all_of(call.prompts.begin(), call.prompts.end(), empty)) refuse_value("Prompt cannot be empty");
}

// Roles and parts; what is in them is the template's affair.
void check_message(const json& message) {
  if (!message.is_object()) refuse_field("messages", "Input should be a list of objects");
  const JsonFields fields(message, "messages.");
  static constexpr std::string_view kRoles[] = {"system",   "user",      "assistant",      "tool",
                                                "function", "developer", "latest_reminder"};
  const std::string lower = boost::algorithm::to_lower_copy(fields.text("role").value_or(""));
  if (std::find(std::begin(kRoles), std::end(kRoles), lower) == std::end(kRoles))
    refuse_field("messages.role",
                 "must be one of 'system', 'user', 'assistant', 'tool', 'function', 'developer'");
  const json* const content = fields.find("content");
  if (content == nullptr) {
    if (lower == "user") refuse_field("messages.content", "Field required");
    return;
  }
  if (content->is_string()) return;
  if (!content->is_array()) refuse_field("messages.content", "Input should be a string or a list of parts");
  for (const json& part : *content) {
    if (!part.is_object()) refuse_field("messages.content", "parts should be objects");
    const std::string type = JsonFields(part, "messages.content.").text("type").value_or("");
    if (type == "image_url" || type == "video_url" || type == "audio_url" || type == "input_audio")
      refuse_value(fmt::format("{}: live requests are text only; images are simulated by `tpsim run`", type));
    if (type != "text") refuse_field("messages.content.type", "Input should be 'text'");
    if (!JsonFields(part, "messages.content.").text("text"))
      refuse_field("messages.content.text", "Field required");
  }
}

void check_tool_choice(const JsonFields& fields, bool has_tools) {
  const json* const choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    const std::string word = choice->get<std::string>();
    if (word == "auto" || word == "none") return;
    if (word != "required")
      refuse_field("tool_choice", "Input should be 'auto', 'required', 'none' or an object");
    if (!has_tools) refuse_value("Tools cannot be empty if tool choice is set to required.");
  } else if (!choice->is_object()) {
    refuse_field("tool_choice", "Input should be 'auto', 'required', 'none' or an object");
  } else if (!has_tools) {
    refuse_value("Tools cannot be empty if tool choice is set to a specific tool.");
  }
  refuse_value(
      "tool_choice: answers that must call a tool follow a grammar, which is not simulated; say auto");
}

// ChatCompletionRequest.normalize_reasoning_inputs and what serving_chat.py gives to the template.
json template_arguments(const JsonFields& fields, const json* given) {
  json arguments = given == nullptr ? json::object() : *given;
  std::string effort = fields.text("reasoning_effort").value_or("");
  static constexpr std::string_view kEfforts[] = {"", "none", "low", "medium", "high", "max"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts))
    refuse_field("reasoning_effort", "Input should be 'none', 'low', 'medium', 'high' or 'max'");
  const auto think = [&arguments](bool thinks) {
    // As models call it: DeepSeek and Kimi the one, Qwen, GLM and others the other.
    for (const char* name : {"thinking", "enable_thinking"}) {
      if (!arguments.contains(name)) arguments[name] = thinks;
    }
  };
  if (const json* const reasoning = fields.find("reasoning");
      reasoning != nullptr && reasoning->is_object()) {
    const JsonFields inner(*reasoning, "reasoning.");
    std::string wanted = inner.text("effort").value_or("");
    if (wanted.empty()) wanted = inner.text("reasoning_effort").value_or("");
    if (wanted == "none" || wanted == "low" || wanted == "medium" || wanted == "high") effort = wanted;
    if (inner.boolean("enabled", inner.boolean("enable", false))) think(true);
  }
  if (effort == "none") think(false);
  if (!effort.empty() && !arguments.contains("reasoning_effort")) arguments["reasoning_effort"] = effort;
  return arguments;
}

}  // namespace

GenerateCall parse_completion(std::string_view body, const ParseLimits& limits) {
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  GenerateCall call;
  call.api = GenerateCall::Api::kCompletions;
  const json* const prompt = fields.find("prompt");
  if (prompt == nullptr) refuse_field("prompt", "Field required");
  if (const auto most = fields.integer("max_tokens", -kMostTokens, kMostTokens); most && *most <= 0)
    refuse_field("max_tokens", "Value error, max_tokens must be positive");
  read_prompt(*prompt, call);
  read_shared(fields, call);
  if (fields.find("logprobs") != nullptr)
    refuse_value("logprobs: nobody computes log probabilities here; leave it out");
  call.echo = fields.boolean("echo", false);
  call.sampling.push_back(parse_sampling(fields, {.max_new_tokens = "max_tokens",
                                                  .min_new_tokens = "min_tokens",
                                                  .seed = "seed",
                                                  .default_max_new_tokens = 16}));
  check_size(call, limits);
  return call;
}

GenerateCall parse_chat(std::string_view body, const ParseLimits& limits) {
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  GenerateCall call;
  call.api = GenerateCall::Api::kChat;
  const json* const messages = fields.find("messages");
  if (messages == nullptr) refuse_field("messages", "Field required");
  if (!messages->is_array()) refuse_field("messages", "Input should be a list");
  if (messages->empty()) refuse_value("Messages cannot be empty.");
  for (const json& message : *messages) check_message(message);
  const json* const tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) refuse_field("tools", "Input should be a list");
  check_tool_choice(fields, tools != nullptr && !tools->empty());
  const json* const arguments = fields.find("chat_template_kwargs");
  if (arguments != nullptr && !arguments->is_object())
    refuse_field("chat_template_kwargs", "Input should be an object");

  call.prompts.emplace_back();
  read_shared(fields, call);
  if (fields.boolean("logprobs", false))
    refuse_value("logprobs: nobody computes log probabilities here; leave it out");
  call.continue_final_message = fields.boolean("continue_final_message", false);
  if (call.continue_final_message)
    refuse_value("continue_final_message: is not simulated; send the message by /v1/completions");
  call.messages = messages->dump();
  const json* const choice = fields.find("tool_choice");
  const bool with_tools = tools != nullptr && !tools->empty() && (choice == nullptr || *choice != "none");
  if (with_tools) call.tools = tools->dump();
  if (const json all = template_arguments(fields, arguments); !all.empty())
    call.chat_template_kwargs = all.dump();

  const SamplingNames names = {.max_new_tokens = "max_tokens",
                               .min_new_tokens = "min_tokens",
                               .seed = "seed",
                               .default_max_new_tokens = std::nullopt};
  SamplingNames newer = names;
  newer.max_new_tokens = "max_completion_tokens";
  const auto newer_limit = fields.integer("max_completion_tokens", -kMostTokens, kMostTokens);
  call.sampling.push_back(parse_sampling(fields, newer_limit.value_or(0) != 0 ? newer : names));
  // A tool's call may be made of special tokens.
  if (with_tools) call.sampling.front().skip_special_tokens = false;
  // As in Python, 0 is no limit.
  if (call.sampling.front().max_new_tokens == 0U) call.sampling.front().max_new_tokens.reset();
  check_size(call, limits);
  return call;
}

}  // namespace tpsim::launch
