#include "launch/serve/protocol/usage_text.h"

#include <fmt/format.h>

namespace tpsim::launch {

Usage usage_of(std::span<const Answer> answers, std::uint32_t n) {
  Usage usage;
  for (const Answer& answer : answers) {
    usage.completion_tokens += answer.completion_tokens;
    if (answer.index % n != 0) continue;
    usage.prompt_tokens += answer.prompt_tokens;
    usage.cached_tokens += answer.cached_tokens;
  }
  return usage;
}

std::string usage_json(const Usage& usage, bool report_cached, bool leave_out_null) {
  std::string details;
  if (report_cached && usage.cached_tokens > 0)
    details = fmt::format(R"("prompt_tokens_details":{{"cached_tokens":{}}},)", usage.cached_tokens);
  else if (!leave_out_null)
    details = R"("prompt_tokens_details":null,)";
  return fmt::format(
      R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},{}"reasoning_tokens":0}})",
      usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens, usage.completion_tokens, details);
}

}  // namespace tpsim::launch
