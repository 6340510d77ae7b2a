#include "launch/serve/protocol/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tpsim::launch {
namespace {

using nlohmann::json;

// Messages, tools and their schemas nest; what nests deeper than this only means to exhaust a stack.
constexpr int kMostNesting = 64;

bool shallow(int depth, json::parse_event_t event, json&) {
  if (depth >= kMostNesting &&
      (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start))
    refuse_field("body", fmt::format("is nested more than {} levels deep", kMostNesting));
  return true;
}

// Not null, false, 0, nor empty, nor a list of such.
bool asks(const json* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number()) return value->get<double>() != 0;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  if (value->is_array())
    return std::any_of(value->begin(), value->end(), [](const json& entry) { return asks(&entry); });
  return !value->empty();
}

// SGLang's SamplingParams.verify().
double checked(std::string_view name, double value, bool holds, std::string_view range) {
  if (!holds) refuse_value(fmt::format("{} must be in {}, got {}.", name, range, value));
  return value;
}

void refuse_constraints(const JsonFields& fields) {
  for (const std::string_view name : {"json_schema", "regex", "ebnf", "structural_tag", "stop_regex"}) {
    if (fields.find(name) != nullptr)
      refuse_value(fmt::format("{}{}: answers that follow a grammar are not simulated; leave it out",
                               fields.prefix(), name));
  }
}

}  // namespace

void refuse_field(std::string_view field, std::string_view sentence) {
  throw Refusal(400, "Bad Request", fmt::format("{}: {}", field, sentence));
}

void refuse_value(const std::string& sentence) { throw Refusal(400, "BadRequestError", sentence); }

std::string error_body(ErrorStyle style, unsigned status, std::string_view type, std::string_view message) {
  if (style == ErrorStyle::kPlain)
    return fmt::format(R"({{"error":{{"message":{}}}}})", json_string(message));
  return fmt::format(R"({{"object":"error","message":{},"type":{},"param":null,"code":{}}})",
                     json_string(message), json_string(type), status);
}

std::string model_not_found_body(std::string_view model) {
  return fmt::format(
      R"({{"error":{{"message":{},"type":"invalid_request_error","param":"model","code":"model_not_found"}}}})",
      json_string(fmt::format("The model '{}' does not exist", model)));
}

json parse_json_object(std::string_view body) {
  json value;
  try {
    value = json::parse(body, shallow);
  } catch (const json::exception& error) {
    // Its text ends with what was read, which may be any bytes.
    const auto* parse_error = dynamic_cast<const json::parse_error*>(&error);
    refuse_field("body", parse_error != nullptr
                             ? fmt::format("JSON decode error at byte {}", parse_error->byte)
                             : std::string("JSON decode error: a number is out of range"));
  }
  if (!value.is_object()) refuse_field("body", "must be a JSON object");
  return value;
}

JsonFields::JsonFields(const json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const json* JsonFields::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::boolean(std::string_view name, bool otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_field(path(name), "Input should be a valid boolean");
  return value->get<bool>();
}

std::optional<std::int64_t> JsonFields::integer(std::string_view name, std::int64_t least,
                                                std::int64_t most) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = whole_number(*value, least, most);
  if (!number)
    refuse_field(path(name), fmt::format("Input should be a valid integer from {} to {}", least, most));
  return number;
}

std::optional<double> JsonFields::real(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_field(path(name), "Input should be a valid number");
  return value->get<double>();
}

std::optional<std::string> JsonFields::text(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_field(path(name), "Input should be a valid string");
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::texts(std::string_view name) const {
  const json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  std::vector<std::string> all;
  if (value->is_array()) {
    for (const json& entry : *value) {
      if (!entry.is_string()) break;
      all.push_back(entry.get<std::string>());
    }
    if (all.size() == value->size()) return all;
  }
  refuse_field(path(name), "Input should be a string or a list of strings");
}

std::vector<std::uint32_t> JsonFields::ids(std::string_view name) const {
  const json* value = find(name);
  return value == nullptr ? std::vector<std::uint32_t>{} : token_ids(*value, path(name));
}

std::optional<std::int64_t> whole_number(const json& value, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto positive = value.get<std::uint64_t>();
    if (positive > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    number = static_cast<std::int64_t>(positive);
  } else if (value.is_number_integer()) {
    number = value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    constexpr double kExact = 9007199254740992.0;
    const double real = value.get<double>();
    if (!(std::abs(real) <= kExact) || real != std::floor(real)) return std::nullopt;
    number = static_cast<std::int64_t>(real);
  } else {
    return std::nullopt;
  }
  if (number < least || number > most) return std::nullopt;
  return number;
}

std::vector<std::uint32_t> token_ids(const json& value, std::string_view field) {
  if (!value.is_array()) refuse_field(field, "Input should be a list of token ids");
  std::vector<std::uint32_t> ids;
  ids.reserve(value.size());
  for (const json& entry : value) {
    const auto id = whole_number(entry, 0, std::numeric_limits<std::uint32_t>::max());
    if (!id) refuse_field(field, "Input should be a list of token ids, whole numbers from 0");
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
  return ids;
}

void append_escaped(std::string_view text, std::string& out) {
  const std::string quoted = json_string(text);
  out.append(quoted, 1, quoted.size() - 2);
}

std::string json_string(std::string_view text) {
  return json(text).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

void refuse_unsimulated(const JsonFields& fields) {
  struct Sentence {
    std::string_view field;
    std::string_view sentence;
  };
  static constexpr Sentence kSentences[] = {
      {"return_logprob", "nobody computes log probabilities here; leave it out"},
      {"return_hidden_states",
       "The server is not configured to return the hidden states. Please set "
       "`--enable-return-hidden-states` to enable this feature."},
      {"return_routed_experts", "routed experts are not simulated; leave it out"},
      {"return_indexer_topk", "the indexer's choices are not simulated; leave it out"},
      {"return_cached_tokens_details", "usage has them with --enable-cache-report; leave it out"},
      {"return_entropy", "nobody computes entropies here; leave it out"},
      {"custom_logit_processor",
       "The server is not configured to enable custom logit processor. Please set "
       "`--enable-custom-logit-processor` to enable this feature."},
      {"session_params",
       "sessions are not simulated; send the whole prompt, its prefix is found in the cache"},
      {"lora_path",
       "LoRA adapters are not simulated. Please launch the server without them and leave lora_path out."},
      {"input_embeds", "embeddings are not simulated; send text or input_ids"},
      {"image_data", "live requests are text only; images are simulated by `tpsim run`"},
      {"video_data", "videos are not simulated; leave it out"},
      {"audio_data", "audio is not simulated; leave it out"},
      {"positional_embed_overrides", "embeddings are not simulated; leave it out"},
      {"multi_item_delimiter_indices", "scoring of several items is not simulated; leave it out"},
  };
  for (const Sentence& known : kSentences) {
    if (asks(fields.find(known.field))) refuse_value(fmt::format("{}: {}", known.field, known.sentence));
  }
  for (const std::string_view rank : {"routed_dp_rank", "data_parallel_rank"}) {
    if (asks(fields.find(rank)))
      refuse_value(fmt::format(
          "{}: the server chooses data-parallel ranks by --load-balance-method; leave it out", rank));
  }
}

void read_common(const JsonFields& fields, GenerateCall& call) {
  call.rids = fields.texts("rid");
  std::vector<std::string> sorted = call.rids;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    refuse_value(fmt::format("Duplicate request IDs detected within the request: ['{}']", *twice));
  const bool one_for_all = call.rids.size() == 1;
  if (!call.rids.empty() && !one_for_all && call.rids.size() != call.prompts.size())
    refuse_value("The specified rids length mismatch with the batch_size for batch processing.");
  if (const auto priority = fields.integer("priority", std::numeric_limits<std::int32_t>::min(),
                                           std::numeric_limits<std::int32_t>::max()))
    call.priority = static_cast<std::int32_t>(*priority);
  for (const std::string_view name : {"cache_salt", "extra_key"}) {
    const std::vector<std::string> keys = fields.texts(name);
    if (keys.size() > 1) refuse_value(fmt::format("{}: one for all prompts of a call is simulated", name));
    if (!keys.empty()) call.extra_key += keys.front();
  }
}

void check_size(const GenerateCall& call, const ParseLimits& limits) {
  if (call.prompts.size() * std::size_t{call.n} > limits.max_prompts)
    refuse_value(fmt::format("{} prompts with {} answers each are more than --max-prompts-per-call {} allows",
                             call.prompts.size(), call.n, limits.max_prompts));
}

SamplingFields parse_sampling(const JsonFields& fields, const SamplingNames& names) {
  SamplingFields out;
  refuse_constraints(fields);
  const auto number = [&fields](std::string_view name, double otherwise) {
    return fields.real(name).value_or(otherwise);
  };

  out.temperature = number("temperature", 1);
  if (!(out.temperature >= 0))
    refuse_value(fmt::format("temperature must be non-negative, got {}.", out.temperature));
  out.top_p = number("top_p", 1);
  checked("top_p", out.top_p, out.top_p > 0 && out.top_p <= 1, "(0, 1]");
  out.top_k = fields.integer("top_k", std::numeric_limits<std::int64_t>::min(), kMostTokens).value_or(-1);
  if (out.top_k != -1 && out.top_k < 1)
    refuse_value(fmt::format("top_k must be -1 (disable) or at least 1, got {}.", out.top_k));
  const double min_p = number("min_p", 0);
  checked("min_p", min_p, min_p >= 0 && min_p <= 1, "[0, 1]");
  const double frequency = number("frequency_penalty", 0);
  checked("frequency_penalty", frequency, frequency >= -2 && frequency <= 2, "[-2, 2]");
  const double presence = number("presence_penalty", 0);
  checked("presence_penalty", presence, presence >= -2 && presence <= 2, "[-2, 2]");
  const double repetition = number("repetition_penalty", 1);
  if (!(repetition > 0 && repetition <= 2))
    refuse_value(fmt::format("repetition_penalty must be in (0, 2] (1.0 = no penalty), got {}.", repetition));

  out.max_new_tokens = names.default_max_new_tokens;
  if (const auto most = fields.integer(names.max_new_tokens, -kMostTokens, kMostTokens)) {
    if (*most < 0) refuse_value(fmt::format("{} must be at least 0, got {}.", names.max_new_tokens, *most));
    out.max_new_tokens = static_cast<std::uint32_t>(*most);
  }
  const std::int64_t least = fields.integer(names.min_new_tokens, -kMostTokens, kMostTokens).value_or(0);
  if (least < 0 || (out.max_new_tokens && least > std::int64_t{*out.max_new_tokens}))
    refuse_value(fmt::format("{} must be in [0, max_new_tokens({})], got {}.", names.min_new_tokens,
                             out.max_new_tokens.value_or(kMostTokens), least));

  const auto seed = fields.integer(names.seed, 0, std::numeric_limits<std::int64_t>::max());
  if (seed) out.seed = static_cast<std::uint64_t>(*seed);
  out.stop = fields.texts("stop");
  std::erase(out.stop, std::string());
  out.stop_token_ids = fields.ids("stop_token_ids");
  out.ignore_eos = fields.boolean("ignore_eos", false);
  out.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  out.no_stop_trim = fields.boolean("no_stop_trim", false);
  if (const auto interval = fields.integer("stream_interval", 1, kMostTokens))
    out.stream_interval = static_cast<std::uint32_t>(*interval);

  if (min_p != 0)
    out.undrawable = "min_p";
  else if (frequency != 0)
    out.undrawable = "frequency_penalty";
  else if (presence != 0)
    out.undrawable = "presence_penalty";
  else if (repetition != 1)
    out.undrawable = "repetition_penalty";
  else if (least != 0)
    out.undrawable = names.min_new_tokens;
  else if (const auto* bias = fields.find("logit_bias"); bias != nullptr && !bias->empty())
    out.undrawable = "logit_bias";
  return out;
}

}  // namespace tpsim::launch
