// What OpenAI's two protocols answer: OpenAIServingCompletion and OpenAIServingChat of SGLang 0.5.12.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/serve/protocol/answer_format.h"
#include "launch/serve/protocol/json_fields.h"
#include "launch/serve/wire/http_message.h"

namespace tpsim::launch {
namespace {

struct Usage {
  std::uint64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// Of `n` answers to each prompt, which counts once.
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

Usage usage_of(const Answer& answer) { return {answer.prompt_tokens, answer.completion_tokens, 0}; }

// As SGLang's UsageProcessor writes it. Cached tokens are told where there are some and `report_cached`;
// otherwise there is a null, or with `leave_out_null` nothing.
std::string usage_json(const Usage& usage, bool report_cached, bool leave_out_null = false) {
  std::string details;
  if (report_cached && usage.cached_tokens > 0)
    details = fmt::format(R"("prompt_tokens_details":{{"cached_tokens":{}}},)", usage.cached_tokens);
  else if (!leave_out_null)
    details = R"("prompt_tokens_details":null,)";
  return fmt::format(
      R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},{}"reasoning_tokens":0}})",
      usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens, usage.completion_tokens, details);
}

// What the two have in common.
class OpenAiFormat : public AnswerFormat {
 public:
  // `object`, `chunk_object`: what a whole answer and an event call themselves.
  OpenAiFormat(const GenerateCall& call, const FormatOptions& options, std::int64_t created,
               std::string_view object, std::string_view chunk_object)
      : options_(options),
        model_(json_string(call.model.value_or("default"))),
        n_(call.n),
        stream_(call.stream),
        include_usage_(call.include_usage || options.default_include_usage),
        continuous_usage_(call.continuous_usage_stats),
        created_(created),
        object_(object),
        chunk_object_(chunk_object) {}

  bool begins_at_once() const override { return false; }
  bool sends_deltas() const override { return stream_; }

  void event(Answer& answer, std::string& out) override {
    if (!answer.finish || !answer.finish->is_error()) {
      add_event(answer, out);
    } else if (!std::exchange(failed_, true)) {
      failed(answer.finish->status, status_name(answer.finish->status), answer.finish->message, out);
    }
  }

  void closing(std::span<Answer> answers, std::string& out) override {
    if (failed_) return;
    add_ends(answers, out);
    if (include_usage_)
      fmt::format_to(std::back_inserter(out), "data: {}],\"usage\":{}}}\n\n", head(answers.front()),
                     usage_json(usage_of(answers, n_), options_.enable_cache_report, leaves_out_null()));
    out += "data: [DONE]\n\n";
  }

  std::string whole(std::span<Answer> answers) override {
    std::string out = head(answers.front(), object_);
    for (const Answer& answer : answers) {
      if (&answer != answers.data()) out += ',';
      add_choice(answer, out);
    }
    fmt::format_to(std::back_inserter(out), R"(],"usage":{},"metadata":{{"weight_version":{}}}}})",
                   usage_json(usage_of(answers, n_), options_.enable_cache_report),
                   json_string(options_.weight_version));
    return out;
  }

  void failed(unsigned status, std::string_view type, std::string_view message, std::string& out) override {
    fmt::format_to(std::back_inserter(out), "data: {{\"error\":{}}}\n\ndata: [DONE]\n\n",
                   error_body(ErrorStyle::kOpenAi, status, type, message));
  }

 protected:
  // The events for what is new of `answer`, and those that tell how each ended where they did not.
  virtual void add_event(Answer& answer, std::string& out) = 0;
  virtual void add_ends(std::span<Answer>, std::string&) {}
  // One of the choices of a whole answer.
  virtual void add_choice(const Answer& answer, std::string& out) = 0;
  // Whether the last event's usage has no null.
  virtual bool leaves_out_null() const = 0;

  std::uint32_t n() const { return n_; }
  bool continuous_usage() const { return continuous_usage_; }
  // {"id":…,"object":…,"created":…,"model":…,"choices":[
  std::string head(const Answer& first) const { return head(first, chunk_object_); }
  // What of its text was not sent, without quotes; marks it as sent.
  static std::string_view delta(Answer& answer) {
    const std::string_view all = answer.text;
    const std::string_view rest = all.substr(std::min(answer.text_sent, all.size()));
    answer.text_sent = all.size();
    return rest;
  }
  // "finish_reason":…,"matched_stop":…
  static std::string finish_fields(const Answer& answer) {
    if (!answer.finish) return R"("finish_reason":null,"matched_stop":null)";
    const FinishReason& finish = *answer.finish;
    const bool matched = finish.kind == FinishReason::Kind::kStop && !finish.matched.empty();
    return fmt::format(R"("finish_reason":"{}","matched_stop":{})", finish.type(),
                       matched ? finish.matched : "null");
  }

 private:
  std::string head(const Answer& first, std::string_view object) const {
    return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)",
                       json_string(first.id), object, created_, model_);
  }

  const FormatOptions& options_;
  const std::string model_;
  const std::uint32_t n_;
  const bool stream_;
  const bool include_usage_;
  const bool continuous_usage_;
  const std::int64_t created_;
  const std::string_view object_, chunk_object_;
  bool failed_ = false;
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(const GenerateCall& call, const FormatOptions& options, std::int64_t created)
      : OpenAiFormat(call, options, created, "text_completion", "text_completion") {
    if (!call.echo) return;
    for (const PromptInput& prompt : call.prompts) append_escaped(prompt.text, echoes_.emplace_back());
  }

 private:
  void add_event(Answer& answer, std::string& out) override {
    const std::string_view echo = answer.begun ? std::string_view() : echo_of(answer);
    fmt::format_to(std::back_inserter(out),
                   "data: {}{{\"index\":{},\"text\":\"{}{}\",\"logprobs\":null,{}}}],\"usage\":{}}}\n\n",
                   head(answer), answer.index, echo, delta(answer), finish_fields(answer),
                   continuous_usage() ? usage_json(usage_of(answer), false) : "null");
    answer.begun = true;
  }

  void add_choice(const Answer& answer, std::string& out) override {
    fmt::format_to(std::back_inserter(out), R"({{"index":{},"text":"{}{}","logprobs":null,{}}})",
                   answer.index, echo_of(answer), answer.text, finish_fields(answer));
  }

  bool leaves_out_null() const override { return true; }

  std::string_view echo_of(const Answer& answer) const {
    return echoes_.empty() ? std::string_view() : std::string_view(echoes_[answer.index / n()]);
  }

  std::vector<std::string> echoes_;  // of each prompt, as JSON writes it; empty: none wanted
};

class ChatFormat final : public OpenAiFormat {
 public:
  ChatFormat(const GenerateCall& call, const FormatOptions& options, std::int64_t created)
      : OpenAiFormat(call, options, created, "chat.completion", "chat.completion.chunk") {}

 private:
  // Its role first, then its text; how each ended is told when all have.
  void add_event(Answer& answer, std::string& out) override {
    const auto to = std::back_inserter(out);
    if (!answer.begun) {
      fmt::format_to(
          to,
          "data: {}{{\"index\":{},\"delta\":{{\"reasoning_content\":null,\"role\":\"assistant\","
          "\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}}]}}\n\n",
          head(answer), answer.index);
      answer.begun = true;
    }
    const std::string_view text = delta(answer);
    if (text.empty()) return;
    fmt::format_to(to,
                   "data: {}{{\"index\":{},\"delta\":{{\"reasoning_content\":null,\"content\":\"{}\"}},"
                   "\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}}]",
                   head(answer), answer.index, text);
    if (continuous_usage()) fmt::format_to(to, ",\"usage\":{}", usage_json(usage_of(answer), false));
    out += "}\n\n";
  }

  void add_ends(std::span<Answer> answers, std::string& out) override {
    for (const Answer& answer : answers)
      fmt::format_to(
          std::back_inserter(out),
          "data: {}{{\"index\":{},\"delta\":{{\"reasoning_content\":null}},\"logprobs\":null,{}}}]}}\n\n",
          head(answers.front()), answer.index, finish_fields(answer));
  }

  void add_choice(const Answer& answer, std::string& out) override {
    fmt::format_to(std::back_inserter(out),
                   R"({{"index":{},"message":{{"role":"assistant","content":{},"reasoning_content":null,)"
                   R"("tool_calls":null}},"logprobs":null,{}}})",
                   answer.index, answer.text.empty() ? "null" : '"' + answer.text + '"',
                   finish_fields(answer));
  }

  bool leaves_out_null() const override { return false; }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(const GenerateCall& call, const FormatOptions& options,
                                                     std::int64_t created) {
  return std::make_unique<CompletionFormat>(call, options, created);
}

std::unique_ptr<AnswerFormat> make_chat_format(const GenerateCall& call, const FormatOptions& options,
                                               std::int64_t created) {
  return std::make_unique<ChatFormat>(call, options, created);
}

}  // namespace tpsim::launch
