// What /v1/completions answers: OpenAIServingCompletion of SGLang 0.5.12.
#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/json_text.h"
#include "launch/serve/protocol/openai_format.h"
#include "launch/serve/protocol/usage_text.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kObject = "text_completion";

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(const GenerateCall& call, const FormatOptions& options, std::int64_t created)
      : OpenAiFormat(call, options, created) {
    if (!call.echo) return;
    for (const PromptInput& prompt : call.prompts) {
      std::string& echo = echoes_.emplace_back();
      append_escaped(prompt.text, echo);
    }
  }

  void event(Answer& answer, std::string& out) override {
    if (ends_in_error(answer, out)) return;
    out += "data: ";
    out += head(answer, kObject);
    const auto to = std::back_inserter(out);
    fmt::format_to(to, R"({{"index":{},"text":")", answer.index);
    if (!answer.begun) out += echo_of(answer);
    out += delta(answer);
    fmt::format_to(to, R"(","logprobs":null,{}}}],"usage":{}}})", finish_fields(answer),
                   continuous_usage() ? usage_json(usage_of(answer), false) : "null");
    out += "\n\n";
    answer.begun = true;
  }

  void closing(std::span<Answer> answers, std::string& out) override {
    if (failed_already()) return;
    if (include_usage()) {
      out += "data: ";
      out += head(answers.front(), kObject);
      out += R"(],"usage":)";
      out += usage_json(usage_of(answers, n()), options().enable_cache_report, /*leave_out_null=*/true);
      out += "}\n\n";
    }
    out += "data: [DONE]\n\n";
  }

  std::string whole(std::span<Answer> answers) override {
    std::string out = head(answers.front(), kObject);
    const auto to = std::back_inserter(out);
    for (const Answer& answer : answers) {
      if (&answer != answers.data()) out += ',';
      fmt::format_to(to, R"({{"index":{},"text":"{}{}","logprobs":null,{}}})", answer.index, echo_of(answer),
                     answer.text, finish_fields(answer));
    }
    fmt::format_to(to, R"(],"usage":{},"metadata":{{"weight_version":{}}}}})",
                   usage_json(usage_of(answers, n()), options().enable_cache_report),
                   json_string(options().weight_version));
    return out;
  }

 private:
  std::string_view echo_of(const Answer& answer) const {
    return echoes_.empty() ? std::string_view() : std::string_view(echoes_[answer.index / n()]);
  }

  std::vector<std::string> echoes_;  // of each prompt, as JSON writes it; empty: none wanted
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(const GenerateCall& call, const FormatOptions& options,
                                                     std::int64_t created) {
  return std::make_unique<CompletionFormat>(call, options, created);
}

}  // namespace tpsim::launch
