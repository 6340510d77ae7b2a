#include "launch/serve/protocol/openai_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launch/serve/protocol/json_text.h"
#include "launch/serve/protocol/refusal.h"
#include "launch/serve/wire/http_request.h"

namespace tpsim::launch {

OpenAiFormat::OpenAiFormat(const GenerateCall& call, const FormatOptions& options, std::int64_t created)
    : options_(options),
      model_(json_string(call.model)),
      n_(call.n),
      stream_(call.stream),
      include_usage_(call.include_usage || options.default_include_usage),
      continuous_usage_(call.continuous_usage_stats),
      created_(created) {}

std::string OpenAiFormat::head(const Answer& first, std::string_view object) const {
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", json_string(first.id),
                     object, created_, model_);
}

std::string_view OpenAiFormat::delta(Answer& answer) {
  const std::string_view all = answer.text;
  const std::string_view rest = all.substr(std::min(answer.text_sent, all.size()));
  answer.text_sent = all.size();
  return rest;
}

std::string OpenAiFormat::finish_fields(const Answer& answer) {
  if (!answer.finish) return R"("finish_reason":null,"matched_stop":null)";
  const FinishReason& finish = *answer.finish;
  const bool matched = finish.kind == FinishReason::Kind::kStop && !finish.matched.empty();
  return fmt::format(R"("finish_reason":"{}","matched_stop":{})", finish.type(),
                     matched ? finish.matched : "null");
}

bool OpenAiFormat::ends_in_error(const Answer& answer, std::string& out) {
  if (!answer.finish || !answer.finish->is_error()) return false;
  if (!failed_) {
    failed(answer.finish->status, status_name(answer.finish->status), answer.finish->message, out);
    failed_ = true;
  }
  return true;
}

void OpenAiFormat::failed(unsigned status, std::string_view type, std::string_view message,
                          std::string& out) {
  fmt::format_to(std::back_inserter(out), "data: {{\"error\":{}}}\n\ndata: [DONE]\n\n",
                 error_body(ErrorStyle::kOpenAi, status, type, message));
}

}  // namespace tpsim::launch
