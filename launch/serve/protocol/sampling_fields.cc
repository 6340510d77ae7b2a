#include "launch/serve/protocol/sampling_fields.h"

#include <fmt/format.h>

#include <limits>

#include "launch/serve/protocol/refusal.h"

namespace tpsim::launch {
namespace {

constexpr std::int64_t kMostTokens = 1'000'000'000;

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
