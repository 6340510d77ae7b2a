// OpenAI's account of tokens, as SGLang's UsageProcessor writes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "launch/serve/protocol/answer.h"

namespace tpsim::launch {

struct Usage {
  std::uint64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// Of `n` answers to each prompt, which counts once.
Usage usage_of(std::span<const Answer> answers, std::uint32_t n);
inline Usage usage_of(const Answer& answer) { return {answer.prompt_tokens, answer.completion_tokens, 0}; }
// As a JSON object. Cached tokens are told where there are some and `report_cached`; otherwise there is a
// null, or with `leave_out_null` nothing.
std::string usage_json(const Usage& usage, bool report_cached, bool leave_out_null = false);

}  // namespace tpsim::launch
