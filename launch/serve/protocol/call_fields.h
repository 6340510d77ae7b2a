// What the bodies of all protocols have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "launch/serve/protocol/generate_call.h"
#include "launch/serve/protocol/json_fields.h"

namespace tpsim::launch {

// Fields of SGLang's that ask for what is not simulated. Throws Refusal with SGLang's own sentence where a
// server without that feature has one.
void refuse_unsimulated(const JsonFields& fields);
// rid, priority and the namespace of the prefix cache, into `call`.
void read_common(const JsonFields& fields, GenerateCall& call);
// Throws Refusal where prompts times n are more than `limits` allows.
void check_size(const GenerateCall& call, const ParseLimits& limits);

inline constexpr std::int64_t kMostAnswers = 1'000'000;  // `n` of a prompt

// How the fields of one protocol differ from another's.
struct SamplingNames {
  std::string_view max_new_tokens = "max_new_tokens";
  std::string_view min_new_tokens = "min_new_tokens";
  std::string_view seed = "sampling_seed";
  std::optional<std::uint32_t> default_max_new_tokens = 128;
};

// Of /generate's "sampling_params", or of the whole body of OpenAI's calls, whose `n` the caller reads.
// Throws Refusal.
SamplingFields parse_sampling(const JsonFields& fields, const SamplingNames& names);

}  // namespace tpsim::launch
