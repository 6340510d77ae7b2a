// SGLang's own protocol: GenerateReqInput of managers/io_struct.py.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {
namespace {

using nlohmann::json;

void read_ids(const json& ids, GenerateCall& call) {
  if (!ids.is_array()) refuse_field("input_ids", "Input should be a list of token ids, or of such lists");
  if (ids.empty()) refuse_value("input_ids cannot be empty.");
  if (!ids.front().is_array()) {
    call.prompts.push_back({.is_text = false, .text = {}, .ids = token_ids(ids, "input_ids")});
    return;
  }
  call.single = false;
  for (const json& entry : ids)
    call.prompts.push_back({.is_text = false, .text = {}, .ids = token_ids(entry, "input_ids")});
  for (const PromptInput& prompt : call.prompts) {
    if (prompt.ids.empty()) refuse_value("input_ids cannot be empty.");
  }
}

void read_prompts(const JsonFields& fields, GenerateCall& call) {
  const json* const text = fields.find("text");
  const json* const ids = fields.find("input_ids");
  if (text == nullptr && ids == nullptr)
    refuse_value("Either text, input_ids or input_embeds should be provided.");
  if (ids != nullptr) {  // with both, the ids count
    read_ids(*ids, call);
    return;
  }
  call.single = text->is_string();
  for (std::string& prompt : fields.texts("text"))
    call.prompts.push_back({.is_text = true, .text = std::move(prompt), .ids = {}});
  if (call.prompts.empty()) refuse_value("text cannot be an empty list.");
}

// SGLang's SamplingParams takes no other names: OpenAI's max_tokens, say, would be an error there, too.
void check_names(const json& params) {
  static constexpr std::string_view kNames[] = {"max_new_tokens",
                                                "stop",
                                                "stop_token_ids",
                                                "stop_regex",
                                                "temperature",
                                                "top_p",
                                                "top_k",
                                                "min_p",
                                                "frequency_penalty",
                                                "presence_penalty",
                                                "min_new_tokens",
                                                "n",
                                                "json_schema",
                                                "repetition_penalty",
                                                "regex",
                                                "ebnf",
                                                "structural_tag",
                                                "ignore_eos",
                                                "no_stop_trim",
                                                "skip_special_tokens",
                                                "custom_params",
                                                "stream_interval",
                                                "logit_bias",
                                                "sampling_seed",
                                                "spaces_between_special_tokens"};
  for (const auto& [name, value] : params.items()) {
    if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) continue;
    refuse_value(fmt::format("sampling_params.{}: is not a sampling parameter{}", name,
                             name.starts_with("max") ? "; max_new_tokens limits an answer" : ""));
  }
}

void read_sampling(const JsonFields& fields, GenerateCall& call) {
  const json* const given = fields.find("sampling_params");
  const auto read = [&call](const json& params, bool first) {
    if (!params.is_object()) refuse_field("sampling_params", "Input should be an object, or a list of them");
    check_names(params);
    const JsonFields one(params, "sampling_params.");
    const auto n = static_cast<std::uint32_t>(one.integer("n", 1, kMostAnswers).value_or(1));
    if (!first && n != call.n)
      refuse_value("The parallel_sample_num should be the same for all samples in sample params.");
    call.n = n;
    call.sampling.push_back(parse_sampling(one, {}));
    // A missing one is 128, one that is null is what the context leaves.
    const auto most = params.find("max_new_tokens");
    if (most != params.end() && most->is_null()) call.sampling.back().max_new_tokens.reset();
  };
  if (given == nullptr) {
    call.sampling.emplace_back();
  } else if (given->is_array()) {
    for (const json& params : *given) read(params, call.sampling.empty());
    if (call.sampling.size() != call.prompts.size())
      refuse_value(
          fmt::format("sampling_params: are {}, for {} prompts", call.sampling.size(), call.prompts.size()));
  } else {
    read(*given, true);
  }
}

}  // namespace

GenerateCall parse_generate(std::string_view body, const ParseLimits& limits) {
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  GenerateCall call;
  call.stream = fields.boolean("stream", false);
  try {
    refuse_unsimulated(fields);
    read_prompts(fields, call);
    read_sampling(fields, call);
    read_common(fields, call);
    // SGLang's router looks at it, its server does not.
    if (const json* const model = fields.find("model"); model != nullptr && model->is_string())
      call.model = model->get<std::string>();
    fields.boolean("log_metrics", true);  // only checked: nobody logs requests here
    if (call.n > 1) call.single = false;
    check_size(call, limits);
  } catch (Refusal& refusal) {
    refusal.in_stream = call.stream;
    throw;
  }
  return call;
}

AbortCall parse_abort(std::string_view body) {
  const json object = parse_json_object(body);
  const JsonFields fields(object);
  return {.rid = fields.text("rid").value_or(""), .abort_all = fields.boolean("abort_all", false)};
}

}  // namespace tpsim::launch
