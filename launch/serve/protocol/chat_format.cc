// What /v1/chat/completions answers: OpenAIServingChat of SGLang 0.5.12.
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/json_text.h"
#include "launch/serve/protocol/openai_format.h"
#include "launch/serve/protocol/usage_text.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kChunk = "chat.completion.chunk";

class ChatFormat final : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  // Its role first, then its text; how each ended is told when all have.
  void event(Answer& answer, std::string& out) override {
    if (ends_in_error(answer, out)) return;
    const auto to = std::back_inserter(out);
    if (!answer.begun) {
      fmt::format_to(
          to,
          "data: {}{{\"index\":{},\"delta\":{{\"reasoning_content\":null,\"role\":\"assistant\","
          "\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}}]}}\n\n",
          head(answer, kChunk), answer.index);
      answer.begun = true;
    }
    const std::string_view text = delta(answer);
    if (text.empty()) return;
    fmt::format_to(to,
                   "data: {}{{\"index\":{},\"delta\":{{\"reasoning_content\":null,\"content\":\"{}\"}},"
                   "\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}}]",
                   head(answer, kChunk), answer.index, text);
    if (continuous_usage()) fmt::format_to(to, ",\"usage\":{}", usage_json(usage_of(answer), false));
    out += "}\n\n";
  }

  void closing(std::span<Answer> answers, std::string& out) override {
    if (failed_already()) return;
    const auto to = std::back_inserter(out);
    for (const Answer& answer : answers)
      fmt::format_to(
          to, "data: {}{{\"index\":{},\"delta\":{{\"reasoning_content\":null}},\"logprobs\":null,{}}}]}}\n\n",
          head(answers.front(), kChunk), answer.index, finish_fields(answer));
    if (include_usage())
      fmt::format_to(to, "data: {}],\"usage\":{}}}\n\n", head(answers.front(), kChunk),
                     usage_json(usage_of(answers, n()), options().enable_cache_report));
    out += "data: [DONE]\n\n";
  }

  std::string whole(std::span<Answer> answers) override {
    std::string out = head(answers.front(), "chat.completion");
    const auto to = std::back_inserter(out);
    for (const Answer& answer : answers) {
      if (&answer != answers.data()) out += ',';
      fmt::format_to(to, R"({{"index":{},"message":{{"role":"assistant","content":)", answer.index);
      out += answer.text.empty() ? "null" : '"' + answer.text + '"';
      fmt::format_to(to, R"(,"reasoning_content":null,"tool_calls":null}},"logprobs":null,{}}})",
                     finish_fields(answer));
    }
    fmt::format_to(to, R"(],"usage":{},"metadata":{{"weight_version":{}}}}})",
                   usage_json(usage_of(answers, n()), options().enable_cache_report),
                   json_string(options().weight_version));
    return out;
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(const GenerateCall& call, const FormatOptions& options,
                                               std::int64_t created) {
  return std::make_unique<ChatFormat>(call, options, created);
}

}  // namespace tpsim::launch
